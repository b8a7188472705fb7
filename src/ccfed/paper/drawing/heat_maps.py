"""Heat maps over r and W."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from ccfed.paper.plan import Plan, by_labels, values_of

if TYPE_CHECKING:
    from ccfed.paper.store import Store


def draw_heat_maps(plan: Plan, store: "Store") -> Figure:
    """One map a method and data set: ours in large figures, the paper's below in small ones."""
    data, methods = values_of(plan.entries, "data"), values_of(plan.entries, "method")
    figure = Figure(figsize=(3.5 * len(methods) + 0.9, 3.2 * len(data)), dpi=200, layout="constrained")
    grid = figure.subplots(len(data), len(methods), squeeze=False)
    pages = by_labels(plan.entries, ("data", "method"))
    for row, name in enumerate(data):
        ours = {e: store.mean(e) for e in plan.entries if e.label("data") == name}
        known = [v for v in ours.values() if not np.isnan(v)]
        known += [e.paper.accuracy for e in ours if e.paper]
        low, high = (min(known), max(known)) if known else (0.0, 100.0)
        for axes, method in zip(grid[row], methods, strict=True):
            entries = pages[f"{name}, {method}"]
            rs, ws = values_of(entries, "r"), values_of(entries, "W")
            field = np.full((len(rs), len(ws)), np.nan)
            for e in entries:
                field[rs.index(e.label("r")), ws.index(e.label("W"))] = ours[e]
            picture = axes.imshow(field, cmap="cividis", vmin=low, vmax=high, aspect="auto")
            for e in entries:
                y, x = rs.index(e.label("r")), ws.index(e.label("W"))
                value = field[y, x]
                dark = not np.isnan(value) and value - low < 0.55 * (high - low)
                colour = "white" if dark else "black"
                text = "not run" if np.isnan(value) else f"{value:.1f}"
                axes.text(x, y - 0.12, text, ha="center", va="center", color=colour, fontsize=9)
                if e.paper:
                    small = f"({e.paper.accuracy:.1f})"
                    axes.text(x, y + 0.22, small, ha="center", va="center", color=colour, fontsize=6.5)
            axes.set_xticks(range(len(ws)), ws)
            axes.set_yticks(range(len(rs)), rs)
            axes.set_xlabel("W")
            axes.set_ylabel("r")
            axes.set_title(f"{method}, {name}", fontsize="medium")
            axes.spines[:].set_visible(False)
        figure.colorbar(picture, ax=grid[row].tolist(), label="test accuracy (%)", shrink=0.9)
    return figure
