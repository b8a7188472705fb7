"""What all pictures have in common: sizes, and one colour, dash and marker for each method, whatever the picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from ccfed.paper.plan import Entry
from ccfed.records.plots import COLOURS, DASHES

MARKERS = ("o", "s", "^", "D", "v", "P", "X")

# The same method looks the same in every picture. What is never shown together may share a look.
ORDER = {
    "CC-FedAvg": 0,
    "FedAvg (full)": 6,
    "FedAvg, T/W rounds": 6,
    "Strategy 1": 1,
    "Strategy 2": 2,
    "CC-FedAvg(c)": 3,
    "FedOpt (all skip together)": 5,
    "FedAvg (dropout)": 5,
    "FedAvg (dropout, best)": 3,
    "FedAvg (dropout, last)": 5,
    "FedNova (normalised)": 3,
    "FedNova (plain mean)": 4,
    "MIFA": 4,
}

PANEL = (3.6, 2.9)  # inches
ENTRY = 1.95  # inches that an entry of a legend takes


@dataclass(frozen=True)
class Look:
    """Colour, dash and marker of one curve."""

    colour: str
    dash: Any
    marker: str


def look_of(method: str) -> Look:
    """The look of a method, by its title."""
    i = ORDER.get(method, 4)
    return Look(COLOURS[i], DASHES[i], MARKERS[i])


def panels(count: int, most: int = 3, size: tuple[float, float] = PANEL) -> tuple[Figure, list[Axes]]:
    """A figure of `count` axes in rows of at most `most`."""
    columns = max(1, min(count, most))
    rows = max(1, -(-count // columns))
    layout = ConstrainedLayoutEngine(w_pad=0.1)  # a label shall not touch its neighbour's panel
    figure = Figure(figsize=(size[0] * columns, size[1] * rows + 0.5), dpi=200, layout=layout)
    grid = figure.subplots(rows, columns, squeeze=False).flatten().tolist()
    for spare in grid[count:]:
        spare.set_visible(False)
    for axes in grid[:count]:
        dress(axes)
    return figure, grid[:count]


def dress(axes: Axes) -> None:
    """Light grid, no frame on top and on the right, small figures."""
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize="small")


def legend_below(figure: Figure, handles: list[Any]) -> None:
    """One legend for all axes, below them, in as many columns as there is room for."""
    if handles:
        columns = min(len(handles), max(2, int(figure.get_figwidth() / ENTRY)))
        style: dict[str, Any] = {"frameon": False, "fontsize": "small", "handlelength": 3.0}  # long enough for dashes
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, **style)


def key(method: str, label: str | None = None, marker: bool = True) -> Line2D:
    """A legend's entry for a method."""
    look = look_of(method)
    shape = look.marker if marker else None
    return Line2D([], [], color=look.colour, linestyle=look.dash, marker=shape, markersize=5, label=label or method)


def keys_to_paper(entries: Sequence[Entry]) -> list[Line2D]:
    """A legend's entry for the paper's own numbers, if there are some."""
    if not any(entry.paper for entry in entries):
        return []
    return [Line2D([], [], color="0.35", linestyle="", marker="o", markerfacecolor="none", label="hollow: the paper")]


def not_run_yet(axes: Axes, beside: bool = False) -> None:
    """Says on axes that nothing has been run: in their middle, if they are empty, or with `beside`, above the paper's
    numbers."""
    style: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "color": "0.4", "style": "italic"}
    if beside:
        axes.text(0.5, 1.0, "ours: not run yet", va="top", fontsize="small", **style)
        return
    axes.text(0.5, 0.5, "not run yet", va="center", **style)
    axes.set_xticks([])
    axes.set_yticks([])
