"""What a call would cost and what is done already: one line a table or figure."""

from collections.abc import Sequence

from ccfed.paper.campaign import Machine, client_steps_of, speed_known
from ccfed.paper.plan import Cell, Plan, unique
from ccfed.paper.store import Store
from ccfed.simulation.progress import in_time


def listing(plans: Sequence[Plan], store: Store, machine: Machine) -> str:
    """A table of the plans: runs, runs that are in the store, client-steps of the others and the time they take.

    The time follows from earlier runs of the same model and data in the store that were made on a machine like this.
    """
    head = ("name", "runs", "done", "client-steps left", "time left", "what")
    rows = [(plan.name, *_cost(plan.cells, store, machine), plan.title) for plan in plans]
    together = unique(cell for plan in plans for cell in plan.cells)
    rows.append(("all of these", *_cost(together, store, machine), "runs that several share counted once"))
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = []
    for row in (head, tuple("-" * width for width in widths), *rows):
        numbers = [text.rjust(width) for text, width in zip(row[1:-1], widths[1:-1], strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers, row[-1]]))
    return "\n".join(lines)


def _cost(cells: Sequence[Cell], store: Store, machine: Machine) -> tuple[str, str, str, str]:
    missing = store.missing(tuple(cells))
    steps = [client_steps_of(cell) for cell in missing]
    kinds = {(cell.settings.data, cell.settings.model): cell for cell in missing}
    speeds = {kind: speed_known(cell, store, machine) for kind, cell in kinds.items()}
    seconds: float | None = 0.0
    for cell, count in zip(missing, steps, strict=True):
        speed = speeds[cell.settings.data, cell.settings.model]
        seconds = None if speed is None or seconds is None else seconds + count / speed
    time = "unknown" if seconds is None else in_time(seconds)
    return str(len(cells)), str(len(cells) - len(missing)), f"{sum(steps):,.0f}", time if missing else "-"
