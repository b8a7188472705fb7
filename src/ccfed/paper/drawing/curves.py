"""Accuracy round by round, and accuracy over K or T."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ccfed.paper.drawing.style import key, legend_below, look_of, not_run_yet, panels
from ccfed.paper.plan import Entry, Plan, by_labels, values_of

if TYPE_CHECKING:
    from ccfed.paper.store import Store

SMOOTH = 5  # rounds in the moving mean that is drawn over the faint curve itself
MARKERS = 8  # on a curve, which tell it from others in grey


def draw_convergence(plan: Plan, store: "Store") -> Figure:
    """One panel a study: accuracy after each round, faint, and its moving mean."""
    pages = by_labels(plan.entries, (plan.columns,))
    figure, grid = panels(len(pages), most=2, size=(4.4, 3.1))
    for axes, (page, entries) in zip(grid, pages.items(), strict=True):
        curves_into(axes, entries, store)
        axes.set_title(page, fontsize="medium")
    legend_below(figure, [key(method) for method in values_of(plan.entries, "method")])
    return figure


def curves_into(axes: Axes, entries: Sequence[Entry], store: "Store") -> None:
    """The curves of these entries, the mean over their seeds."""
    drawn = False
    for i, entry in enumerate(entries):
        runs = store.of(entry)
        if not runs:
            continue
        drawn = True
        look = look_of(entry.label("method"))
        curve = np.mean([run.curve for run in runs], axis=0)
        rounds = np.arange(1, len(curve) + 1)
        axes.plot(rounds, curve, color=look.colour, linewidth=0.5, alpha=0.25)
        apart = max(1, len(curve) // MARKERS)
        axes.plot(
            rounds,
            moving_mean(curve, SMOOTH),
            color=look.colour,
            linestyle=look.dash,
            linewidth=1.3,
            marker=look.marker,
            markersize=4,
            markevery=(i * apart // len(entries), apart),
        )
    axes.set_xlabel("round")
    axes.set_ylabel("test accuracy (%)")
    axes.margins(x=0.01)
    if not drawn:
        not_run_yet(axes)


def moving_mean(curve: np.ndarray, width: int) -> np.ndarray:
    """The mean of each value and up to `width` - 1 before it."""
    sums = np.cumsum(np.concatenate([[0.0], curve]))
    ends = np.arange(1, len(curve) + 1)
    starts = np.maximum(ends - width, 0)
    means: np.ndarray = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def draw_nova(plan: Plan, store: "Store") -> Figure:
    """A panel a model for accuracy over K, and one for accuracy over T at K = 10."""
    pages = by_labels(plan.entries, plan.pages)
    figure, grid = panels(len(pages), most=3, size=(4.0, 3.1))
    for axes, (page, entries) in zip(grid, pages.items(), strict=True):
        over = "T" if page.endswith("over T") else "K"
        drawn = False
        for method in values_of(entries, "method"):
            look = look_of(method)
            mine = [e for e in entries if e.label("method") == method]
            line = sorted((float(e.label("setting").split()[-1]), store.mean(e)) for e in mine)
            drawn = drawn or any(store.of(e) for e in mine)
            style = {"color": look.colour, "linestyle": look.dash, "marker": look.marker, "markersize": 4.5}
            axes.plot([x for x, _ in line], [value for _, value in line], **style)  # gaps where nothing has been run
        axes.set_xlabel("rounds T (K = 10 local steps)" if over == "T" else "local steps K (T = 400 rounds)")
        axes.set_ylabel("test accuracy (%)")
        axes.set_title(page, fontsize="medium")
        if drawn:
            values = sorted({float(e.label("setting").split()[-1]) for e in entries})
            axes.set_xscale("log")
            axes.set_xticks(values, [f"{value:g}" for value in values])
            axes.minorticks_off()
        else:
            not_run_yet(axes)
    legend_below(figure, [key(method) for method in values_of(plan.entries, "method")])
    return figure
