"""Small runs and made-up results."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ccfed import data
from ccfed.data import Dataset
from ccfed.paper.catalogue import PLANS
from ccfed.paper.plan import Cell
from ccfed.paper.store import Finished, Store
from ccfed.simulation.settings import Settings

TINY = Settings(
    data="tiny", clients=4, budgets="groups", r=0.5, W=3, rounds=6, steps=3, batch_size=8, lr=0.1, schedule="ad-hoc"
)


@pytest.fixture
def load() -> Callable[[str], Dataset]:
    """Every data set is a made-up one."""
    made: dict[str, Dataset] = {}

    def of(name: str) -> Dataset:
        if name not in made:
            made[name] = data.synthetic(120, 6, 3, seed=len(made), test_samples=40)
        return made[name]

    return of


@pytest.fixture
def cells() -> list[Cell]:
    """Runs of several methods and lengths that share a batch, one of them with a probe."""
    settings = [
        replace(TINY, method="cc-fedavg"),
        replace(TINY, method="strategy-2", rounds=4),
        replace(TINY, method="fedopt", schedule=None, server_momentum=0.5),
        replace(TINY, method="cc-fedavg", seed=1),
    ]
    watched = [Cell(replace(TINY, method=name), "distance") for name in ("cc-fedavg", "strategy-2")]
    return [*map(Cell, settings), *watched]


def made_up(cell: Cell, accuracy: float) -> Finished:
    """A result with this accuracy after every round."""
    s = cell.settings
    extra: dict[str, object] = {}
    if cell.probe:
        rounds = list(range(1, s.rounds))
        extra = {"client": 0, "round": rounds, "skips": [True] * len(rounds)}
        for rule, far in (("last move", 1.0), ("last model", 2.0)):
            extra[rule] = {
                "euclidean": [far] * len(rounds),
                "cosine": [1 - far / 100] * len(rounds),
                "cosine of moves": [1 / (1 + far)] * len(rounds),
            }
    return Finished(
        key=cell.key,
        settings=cell.described(),
        rounds=s.rounds,
        accuracy=(accuracy,) * s.rounds,
        client_steps=(s.clients * s.steps,) * s.rounds,
        client_steps_full=s.rounds * s.clients * s.steps,
        bytes_up=10**9,
        bytes_down=10**9,
        storage_client_bytes=10**6,
        storage_server_bytes=0,
        parameters=100,
        seconds=1.0,
        probe=cell.probe,
        chance=10.0,
        extra=extra,
        made={"machine": "none: made up", "date": "2026-01-01 00:00 UTC"},
    )


@pytest.fixture(scope="session")
def as_published(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store in which every run of a small model came out as the paper says, where it says anything."""
    store = Store(tmp_path_factory.mktemp("as published"))
    guesses = {"fedavg": 70.0, "cc-fedavg": 69.0, "strategy-1": 60.0, "strategy-2": 62.0}
    made: dict[str, Finished] = {}
    for make in PLANS.values():
        for entry in make().entries:
            for seed, cell in enumerate(entry.cells):
                if cell.settings.model == "resnet18":
                    continue
                spread = 0.0 if len(entry.cells) == 1 else (entry.paper.deviation or 0.0) if entry.paper else 0.0
                mean = entry.paper.accuracy if entry.paper else guesses.get(cell.settings.method, 50.0)
                wanted = mean + spread * float(np.linspace(-1, 1, 5)[seed]) * 1.2649
                if entry.paper is None and cell.key in made:
                    continue
                run = made_up(cell, wanted)
                if entry.measure == "best" and cell.key in made:
                    run = replace(made[cell.key], accuracy=(wanted, *made[cell.key].accuracy[1:]))
                elif cell.key in made and made[cell.key].accuracy[0] > wanted and cell.settings.method == "dropout":
                    run = replace(run, accuracy=(made[cell.key].accuracy[0], *run.accuracy[1:]))
                made[cell.key] = run
    for run in made.values():
        store._finished[run.key] = run  # without a write to the disk for each of hundreds
    return store


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    """A store without runs."""
    return Store(tmp_path)
