"""What a call would cost and what is done already: one line a table or figure."""

from collections.abc import Callable, Sequence

from ccfed.paper.machine import Machine
from ccfed.paper.plan import Cell, Plan, unique
from ccfed.paper.sharing import client_steps_of
from ccfed.paper.speed import SHAPES, known_speed, measured_speed
from ccfed.paper.store import Store
from ccfed.simulation.progress import in_time

Kind = tuple[str, str]  # data and model


def listing(plans: Sequence[Plan], store: Store, machine: Machine, say: Callable[[str], None]) -> str:
    """A table of the plans: runs, runs that are in the store, client-steps of the others and the time they take.

    The time follows from earlier runs of the same model and data in the store that were made on a machine like this,
    or from a few steps that are measured now; `say` hears of these.
    """
    head = ("name", "runs", "done", "client-steps left", "time left", "what")
    together = unique(cell for plan in plans for cell in plan.cells)
    kinds = {_kind(cell): cell for cell in store.missing(together)}
    measured: dict[object, float | None] = {}  # by model and shape of the images, on which the speed depends
    speeds: dict[Kind, float | None] = {}
    for (data, model), cell in kinds.items():
        speed, alike = known_speed(cell, store, machine), (model, SHAPES.get(data))
        if speed is None and alike not in measured:
            measured[alike] = measured_speed(cell, machine, say)
        speeds[data, model] = measured[alike] if speed is None else speed
    rows = [(plan.name, *_cost(plan.cells, store, speeds), plan.title) for plan in plans]
    rows.append(("all of these", *_cost(together, store, speeds), "runs that several share counted once"))
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = []
    for row in (head, tuple("-" * width for width in widths), *rows):
        numbers = [text.rjust(width) for text, width in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]))
    return "\n".join(lines)


def _kind(cell: Cell) -> Kind:
    return cell.settings.data, cell.settings.model


def _cost(cells: Sequence[Cell], store: Store, speeds: dict[Kind, float | None]) -> tuple[str, str, str, str]:
    missing = store.missing(tuple(cells))
    steps = [client_steps_of(cell) for cell in missing]
    seconds: float | None = 0.0
    for cell, count in zip(missing, steps, strict=True):
        speed = speeds[_kind(cell)]
        seconds = None if speed is None or seconds is None else seconds + count / speed
    time = "unknown" if seconds is None else in_time(seconds)
    return str(len(cells)), str(len(cells) - len(missing)), f"{sum(steps):,.0f}", time if missing else "-"
