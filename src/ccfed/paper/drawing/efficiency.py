"""Accuracy over W where all clients are equally scarce."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ccfed.paper.drawing.style import key, keys_to_paper, legend_below, look_of, not_run_yet, panels
from ccfed.paper.plan import Plan, by_labels, values_of

if TYPE_CHECKING:
    from ccfed.paper.store import Store


def draw_efficiency(plan: Plan, store: "Store") -> Figure:
    """One panel a data set: accuracy over W, one line a method, the paper's numbers hollow."""
    pages = by_labels(plan.entries, plan.pages)
    figure, grid = panels(len(pages), most=2, size=(4.4, 3.2))
    widths = sorted({int(w) for w in values_of(plan.entries, "W")})
    for axes, (page, entries) in zip(grid, pages.items(), strict=True):
        for method in values_of(entries, "method"):
            look = look_of(method)
            line = sorted((int(e.label("W")), store.mean(e)) for e in entries if e.label("method") == method)
            axes.plot(  # with gaps where nothing has been run
                [w for w, _ in line],
                [value for _, value in line],
                color=look.colour,
                linestyle=look.dash,
                marker=look.marker,
                markersize=4.5,
            )
            theirs = [(int(e.label("W")), e.paper.accuracy) for e in entries if e.label("method") == method and e.paper]
            axes.plot(
                [w for w, _ in theirs],
                [value for _, value in theirs],
                look.marker,
                color=look.colour,
                markerfacecolor="none",
                markersize=8,
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths, [str(w) for w in widths])
        axes.minorticks_off()
        axes.set_xlabel("W (all clients train one round in W)")
        axes.set_ylabel("test accuracy (%)")
        axes.set_title(page, fontsize="medium")
        if not any(store.of(entry) for entry in entries):
            not_run_yet(axes, beside=any(entry.paper for entry in entries))
    legend_below(figure, [*map(key, values_of(plan.entries, "method")), *keys_to_paper(plan.entries)])
    return figure
