"""Curves over rounds: colour-blind safe, and told apart in grey by their dashes."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, without its yellow, which is lost on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
# The same method looks the same in every picture, wherever it stands among the others.
PLACES = {
    "cc-fedavg": 0,
    "strategy-1": 1,
    "strategy-2": 2,
    "cc-fedavg-c": 3,
    "mifa": 4,
    "fedopt": 5,
    "fedavg": 6,
}
LABELS = {
    "accuracy": "test accuracy (%)",
    "loss": "test loss",
    "trained": "clients that trained",
    "estimated": "clients that were estimated",
    "client_steps": "client-steps",
    "bytes_up": "bytes up",
    "bytes_down": "bytes down",
    "seconds": "seconds",
}


class Curve(Protocol):
    """What can be drawn as one curve: several seeds of one method."""

    @property
    def name(self) -> str:
        """The method."""

    def column(self, name: str) -> NDArray[Any]:
        """A RoundRecord's field for every seed and round: [seeds, rounds]."""


def places(names: Sequence[str]) -> list[int]:
    """Which colour and dash each of `names` gets: a known method its own, others those that are left."""
    known = [PLACES.get(name) for name in names]
    left = [i for i in range(len(COLOURS)) if i not in known] or list(range(len(COLOURS)))
    others = cycle(left)
    return [next(others) if place is None else place for place in known]


def curves(runs: Iterable[Curve], column: str = "accuracy") -> "Figure":
    """One curve a method, the mean over its seeds, with a band of one standard deviation where there are several."""
    from matplotlib.figure import Figure  # half a second, which only those who draw shall wait

    figure = Figure(figsize=(6.4, 4.0), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    several = False
    drawn = list(runs)
    for seeds, place in zip(drawn, places([each.name for each in drawn]), strict=True):
        values = seeds.column(column)
        rounds = np.arange(1, values.shape[1] + 1)
        mean = values.mean(0)
        colour, dash = COLOURS[place], DASHES[place]
        axes.plot(rounds, mean, color=colour, linestyle=dash, linewidth=1.6, label=seeds.name)
        if len(values) > 1:
            several = True
            deviation = values.std(0, ddof=1)
            axes.fill_between(rounds, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("round")
    axes.set_ylabel(LABELS.get(column, column))
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    title = "mean ± standard deviation of seeds" if several else None
    axes.legend(frameon=False, fontsize="small", title=title, title_fontsize="small", alignment="left")
    return figure
