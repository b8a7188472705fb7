"""Estimated against true local model, round by round."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from ccfed.paper.drawing.curves import moving_mean
from ccfed.paper.drawing.style import key, legend_below, look_of, not_run_yet, panels
from ccfed.paper.plan import Plan, by_labels, values_of

if TYPE_CHECKING:
    from ccfed.paper.store import Store

SMOOTH = 10  # rounds in the moving mean that is drawn over the faint values themselves
OWN_RULE = {"CC-FedAvg": "last move", "Strategy 2": "last model"}
MEASURES = {
    "euclidean": "Euclidean distance",
    "cosine": "cosine of the models",
    "cosine of moves": "cosine of the moves",
}


def draw_distances(plan: Plan, store: "Store") -> Figure:
    """One row a measure, one column a share of IID data; each method's own estimates in its own run."""
    pages = by_labels(plan.entries, ("iid",))
    figure, grid = panels(len(MEASURES) * len(pages), most=len(pages), size=(4.6, 2.5))
    for i, (measure, title) in enumerate(MEASURES.items()):
        for axes, (iid, entries) in zip(grid[i * len(pages) :], pages.items(), strict=False):
            empty = True
            for entry in entries:
                look = look_of(entry.label("method"))
                for run in store.of(entry):
                    values = run.extra.get(OWN_RULE[entry.label("method")], {}).get(measure, [])
                    if values:
                        rounds = run.extra["round"]
                        axes.plot(rounds, values, color=look.colour, linewidth=0.5, alpha=0.3)
                        mean = moving_mean(np.array(values, dtype=np.float64), SMOOTH)
                        axes.plot(rounds, mean, color=look.colour, linestyle=look.dash, linewidth=1.3)
                        empty = False
            axes.set_ylabel(title, fontsize="small")
            axes.set_xlabel("round")
            axes.margins(x=0.01)
            if i == 0:
                axes.set_title(f"share of IID data {iid}", fontsize="medium")
            if empty:
                not_run_yet(axes)
    legend_below(figure, [key(method, marker=False) for method in values_of(plan.entries, "method")])
    return figure
