"""Measured gradient norms under their bounds, over the number of rounds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ccfed.paper.drawing.style import dress, look_of


def draw_slopes(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """`rows` have method, T, measured and bound; log-log, with a line of slope -1/2 to compare with."""
    figure = Figure(figsize=(5.2, 3.8), dpi=200, layout="constrained")
    axes = figure.add_subplot()
    dress(axes)
    handles = []
    for method in dict.fromkeys(row["method"] for row in rows):
        look = look_of(method)
        mine = [row for row in rows if row["method"] == method]
        rounds = [row["T"] for row in mine]
        axes.plot(rounds, [row["measured"] for row in mine], color=look.colour, marker=look.marker, markersize=5)
        axes.plot(
            rounds,
            [row["bound"] for row in mine],
            color=look.colour,
            linestyle="--",
            marker=look.marker,
            markerfacecolor="none",
            markersize=5,
        )
        handles += [
            Line2D([], [], color=look.colour, marker=look.marker, label=f"{method}, measured"),
            Line2D(
                [],
                [],
                color=look.colour,
                linestyle="--",
                marker=look.marker,
                markerfacecolor="none",
                label=f"{method}, bound",
            ),
        ]
    shown = np.array(sorted({row["T"] for row in rows}), dtype=np.float64)
    middle = np.sqrt(min(row["measured"] for row in rows) * max(row["bound"] for row in rows))
    axes.plot(shown, middle * np.sqrt(shown[0] / shown), color="0.55", linestyle=":", linewidth=1.2)
    handles.append(Line2D([], [], color="0.55", linestyle=":", label="slope -1/2"))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(shown, [f"{t:g}" for t in shown])
    axes.set_xlabel("rounds T")
    axes.set_ylabel("least mean squared gradient norm")
    axes.legend(handles=handles, frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
