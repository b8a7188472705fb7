"""Which runs go side by side: those of one kind, so many that they keep the machine busy and fit into its memory."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ccfed.models.network import Network
from ccfed.paper.machine import Machine
from ccfed.paper.plan import Cell

ENOUGH = {"mlp": 3000, "cnn": 256, "resnet18": 16}
"""About so many trainings side by side of a model, and more of them do not make a GPU faster."""
ENOUGH_OF_ANOTHER = 64
ENOUGH_ON_CPU = 16
MOST_AT_ONCE = 400  # federations in a batch


def in_batches(
    cells: Sequence[Cell], network_of: Callable[[Cell], Network], machine: Machine, at_once: int | None = None
) -> list[tuple[Cell, ...]]:
    """The cells in batches of those that can be trained side by side: full enough to keep the machine busy, small
    enough for its memory, at most `at_once` runs each; in the order of their first cells. Those of a kind are about
    equally full: a small one at the end would have the machine to itself and leave most of it idle."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, cell in enumerate(cells):
        s = cell.settings
        groups.setdefault((s.data, s.model, s.batch_size), []).append(i)
    room = machine.free_bytes() / 2
    on_cpu = machine.place.type == "cpu"
    out: list[list[int]] = []
    for group in groups.values():
        network = network_of(cells[group[0]])
        enough = ENOUGH_ON_CPU if on_cpu else ENOUGH.get(cells[group[0]].settings.model, ENOUGH_OF_ANOTHER)
        total = sum(side_by_side(cells[i]) for i in group)
        each = total / max(1, round(total / enough)) - 1e-6  # of a batch
        busy, goal = 0.0, each  # so many have been dealt out when the next batch is full
        batch: list[int] = []
        taken = 0.0
        for i in group:
            need, most = memory_of(cells[i], network), at_once or MOST_AT_ONCE
            full = at_once is None and busy >= goal
            if batch and (taken + need > room or len(batch) == most or full):
                out.append(batch)
                batch, taken, goal = [], 0.0, goal + each * full
            batch.append(i)
            taken += need
            busy += side_by_side(cells[i])
        out.append(batch)
    return [tuple(cells[i] for i in batch) for batch in sorted(out)]


def memory_of(cell: Cell, network: Network) -> float:
    """About the bytes that a run takes while it shares a batch: its pasts, and the work of one round."""
    s = cell.settings
    past = s.clients if s.make_method().estimator.keeps else 0
    working = max(1.0, s.participation * s.clients)
    vectors = 2 * past + 6 * working  # moves and the models they started from; parameters, gradients, moves
    samples = working * s.steps * s.batch_size * 24  # which sample lies in which slot
    return 4 * network.size * vectors + samples


def side_by_side(cell: Cell) -> float:
    """How many clients of a run train in a round, as a rule."""
    return client_steps_of(cell) / (cell.settings.rounds * cell.settings.steps)


def client_steps_of(cell: Cell) -> float:
    """The client-steps that a run is expected to take (exactly, but for what is drawn)."""
    s = cell.settings
    method = s.make_method()
    selected = s.clients if s.participation == 1 else max(int(s.participation * s.clients + 1e-9), 1)
    p = method.budget(torch.arange(s.clients))
    if method.schedule.name == "always":
        share = float(method.work(p, s.steps).to(torch.float64).mean()) / s.steps
    elif method.schedule.name == "synchronised":
        share = float(p.min())
    else:
        share = float(p.mean())
    probe = s.rounds * s.steps if cell.probe == "distance" else 0
    return s.rounds * s.steps * selected * share + probe
