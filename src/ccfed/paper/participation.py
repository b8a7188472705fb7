"""Who took part when: the rounds of the algorithm itself, with nothing to train, for training decides nothing here."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ccfed.algorithm import play, select, start
from ccfed.paper.drawing.participation import draw_rasters
from ccfed.paper.plan import Entry, Plan
from ccfed.paper.store import Store
from ccfed.paper.studies import DEVICE_FMNIST, SILO_CIFAR10, TITLES, method
from ccfed.simulation.settings import Settings

SHOWN = 100  # rounds
SHARES = (0.1, 0.2, 0.3, 0.4)

Raster = NDArray[np.int8]


@cache
def raster_of(settings: Settings) -> Raster:
    """Who did what in each round: [clients, rounds]; 0 not selected, 1 silent, 2 estimated, 3 trained."""
    chosen = settings.make_method()
    state = start(chosen, torch.zeros(1), settings.clients)
    raster = np.zeros((settings.clients, settings.rounds), dtype=np.int8)
    for t in range(settings.rounds):
        selected = select(settings.clients, settings.participation, t, settings.seed)
        playing = play(state, chosen, selected, steps=1, rounds=settings.rounds, seed=settings.seed)
        work = next(playing)
        try:
            playing.send(torch.zeros(len(work.clients), 1))
        except StopIteration as stop:
            outcome = stop.value
        did = torch.where(outcome.trained, 3, torch.where(outcome.estimated, 2, 1))
        raster[selected.numpy(), t] = did.numpy()
    return raster


def participation() -> Plan:
    """Both schedules of the 8-client study, and 10 to 40 % participation of 100 clients, FedAvg and CC-FedAvg."""
    entries = []
    for schedule, name in (("round-robin", "fedavg"), ("ad-hoc", "cc-fedavg")):
        of_eight = method(SILO_CIFAR10, "cc-fedavg", schedule)
        entries.append(Entry((("study", f"8 clients, {schedule}"), ("method", TITLES["cc-fedavg"])), of_eight))
        for share in SHARES:
            settings = method(replace(DEVICE_FMNIST, participation=share), name)
            entries.append(Entry((("study", f"100 clients, {100 * share:g} %"), ("method", TITLES[name])), settings))
    return Plan(
        name="participation",
        title=f"Who took part when, the first {SHOWN} rounds",
        entries=tuple(entries),
        draw=draw,
        table=table,
        csv_rows=csv_rows,
        trains=False,
        notes=(
            "Clients in the order of their index; the scarcest quarter (p = 1/8) comes first. Nothing is trained for"
            " this figure: who trains when follows from the schedule, the selection and the seed.",
        ),
    )


def draw(plan: Plan, store: Store) -> Figure:
    """One raster an entry."""
    return draw_rasters({f"{e.label('method')}, {e.label('study')}": raster_of(_shown(e)) for e in plan.entries})


def _shown(entry: Entry) -> Settings:
    return replace(entry.settings, rounds=min(SHOWN, entry.settings.rounds))


def csv_rows(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """One row an entry and quarter of the clients: how often they were selected, trained and were estimated, per
    client."""
    rows = []
    for entry in plan.entries:
        raster = raster_of(_shown(entry))
        for quarter, part in enumerate(np.array_split(raster, 4), 1):
            counts = {name: float((part == code).sum(1).mean()) for name, code in (("trained", 3), ("estimated", 2))}
            selected = float((part > 0).sum(1).mean())
            rows.append(
                {**dict(entry.labels), "quarter": quarter, "rounds": raster.shape[1], "selected": selected, **counts}
            )
    return rows


def table(plan: Plan, store: Store) -> str:
    """The counts as Markdown."""
    head = ["study", "method", "quarter", "selected", "trained", "estimated"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * 4]
    for row in csv_rows(plan, store):
        cells = [str(row[name]) for name in head[:3]] + [f"{row[name]:.1f}" for name in head[3:]]
        lines.append("| " + " | ".join(cells) + " |")
    return "Rounds in which a client of each quarter was selected, trained and was estimated (mean).\n\n" + "\n".join(
        lines
    )
