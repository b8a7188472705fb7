"""What each method costs, beside the accuracy it reaches."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from ccfed.paper.drawing.style import dress
from ccfed.paper.plan import Plan
from ccfed.records.plots import COLOURS

if TYPE_CHECKING:
    from ccfed.paper.store import Finished, Store

BARS = (
    ("test accuracy (%)", COLOURS[0]),
    ("million client-steps", COLOURS[1]),
    ("GB up and down", COLOURS[2]),
    ("MB stored", COLOURS[3]),
)


def draw_cost(plan: Plan, store: "Store") -> Figure:
    """One row a method (and place of the pasts), one panel a cost; bars for traffic and storage have two parts."""
    rows = [(e.label("method"), store.of(e)) for e in plan.entries]
    figure = Figure(figsize=(11.0, 0.34 * len(rows) + 1.2), dpi=200, layout="constrained")
    grid = figure.subplots(1, len(BARS), sharey=True)
    at = list(range(len(rows)))[::-1]
    for axes, (title, colour), parts in zip(grid, BARS, (_accuracy, _steps, _traffic, _storage), strict=True):
        dress(axes)
        axes.grid(visible=False, axis="y")
        for y, (_, runs) in zip(at, rows, strict=True):
            if not runs:
                axes.text(0, y, " not run yet", va="center", fontsize=7, color="0.4", style="italic")
                continue
            first, second = parts(runs[0])
            axes.barh(y, first, color=colour, height=0.65)
            axes.barh(y, second, left=first, color=colour, height=0.65, alpha=0.4, hatch="////", edgecolor="white")
            text = f"{first:.1f}" if parts is _accuracy else f"{first + second:.3g}"
            axes.text(first + second, y, f" {text}", va="center", fontsize=7)
        axes.set_xlabel(title, fontsize="small")
        axes.margins(x=0.16)
        axes.set_ylim(-0.6, len(rows) - 0.4)
    grid[2].set_title("solid: up, hatched: down", fontsize=7, loc="left")
    grid[3].set_title("solid: all clients, hatched: server", fontsize=7, loc="left")
    grid[0].set_yticks(at, [name for name, _ in rows])
    return figure


def _accuracy(run: "Finished") -> tuple[float, float]:
    return run.measure("mean_last_10"), 0.0


def _steps(run: "Finished") -> tuple[float, float]:
    return sum(run.client_steps) / 1e6, 0.0


def _traffic(run: "Finished") -> tuple[float, float]:
    return run.bytes_up / 1e9, run.bytes_down / 1e9


def _storage(run: "Finished") -> tuple[float, float]:
    return run.storage_client_bytes / 1e6, run.storage_server_bytes / 1e6
