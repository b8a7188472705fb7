"""A table as a picture: accuracy over the table's columns, one line a method, the paper's numbers hollow."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from ccfed.paper.drawing.style import key, keys_to_paper, legend_below, look_of, not_run_yet, panels
from ccfed.paper.plan import Entry, Plan, by_labels, values_of

if TYPE_CHECKING:
    from ccfed.paper.store import Store

WIDTH = 0.5  # of a column, over which the methods' markers are spread


def draw_table(plan: Plan, store: "Store") -> Figure:
    """One panel a page of the table."""
    pages = by_labels(plan.entries, plan.pages)
    figure, grid = panels(len(pages), most=3, size=(4.6 if len(pages) > 1 else 6.2, 3.4))
    for axes, (page, entries) in zip(grid, pages.items(), strict=True):
        columns, methods = values_of(entries, plan.columns), values_of(entries, plan.rows)
        at = np.arange(len(columns), dtype=np.float64)
        for i, method in enumerate(methods):
            look = look_of(method)
            shift = WIDTH * ((i + 0.5) / len(methods) - 0.5)
            line = [_only(entries, plan, method, column) for column in columns]
            ours = np.array([store.mean(entry) if entry else np.nan for entry in line])
            spread = np.array([store.deviation(entry) if entry else np.nan for entry in line])
            theirs = np.array([entry.paper.accuracy if entry and entry.paper else np.nan for entry in line])
            axes.errorbar(  # with gaps where nothing has been run
                at + shift,
                ours,
                yerr=np.nan_to_num(spread),
                color=look.colour,
                linestyle=look.dash,
                marker=look.marker,
                markersize=4.5,
                linewidth=1.0,
                elinewidth=0.8,
            )
            axes.plot(at + shift, theirs, look.marker, color=look.colour, markerfacecolor="none", markersize=7.5)
        axes.set_xticks(at, columns)
        axes.set_xlabel(AXES.get(plan.columns, plan.columns))
        axes.set_ylabel("test accuracy (%)")
        axes.set_title(f"schedule {page}" if plan.pages == ("schedule",) else page, fontsize="medium")
        if not any(store.of(entry) for entry in entries):
            not_run_yet(axes, beside=any(entry.paper for entry in entries))
    methods = values_of(plan.entries, plan.rows)
    legend_below(figure, [*map(key, methods), *keys_to_paper(plan.entries)])
    return figure


AXES = {"iid": "share of the data that is IID", "participation": "participation", "setting": ""}


def _only(entries: Sequence[Entry], plan: Plan, row: str, column: str) -> Entry | None:
    found = [e for e in entries if e.label(plan.rows) == row and e.label(plan.columns) == column]
    return found[0] if found else None
