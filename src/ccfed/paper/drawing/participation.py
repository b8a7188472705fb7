"""Who took part when: one row a client, one column a round."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ccfed.paper.drawing.style import panels

SHADES = {"trained": "#0B3C5D", "estimated": "#E69F00", "silent": "#D9D9D9", "not selected": "#FFFFFF"}


def draw_rasters(rasters: Mapping[str, np.ndarray]) -> Figure:
    """`rasters`: by title, int8 [clients, rounds] with 0 not selected, 1 silent, 2 estimated, 3 trained."""
    figure, grid = panels(len(rasters), most=5, size=(3.1, 2.5))
    order = list(SHADES)[::-1]
    colours = np.array([[int(SHADES[name][i : i + 2], 16) for i in (1, 3, 5)] for name in order], dtype=np.uint8)
    for axes, (title, raster) in zip(grid, rasters.items(), strict=True):
        axes.imshow(colours[raster], aspect="auto", interpolation="nearest", origin="lower")
        axes.grid(visible=False)
        axes.set_title(title, fontsize="small")
        axes.set_xlabel("round", fontsize="small")
        axes.set_ylabel("client", fontsize="small")
    there = {order[code] for raster in rasters.values() for code in np.unique(raster)}
    handles = [Patch(facecolor=SHADES[name], edgecolor="0.6", label=name) for name in SHADES if name in there]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    return figure
