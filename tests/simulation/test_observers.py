"""Observers are told of the start and of the end, whatever happens to the simulation or to one of them."""

import errno
from collections.abc import Callable

import pytest
import torch

from ccfed import methods
from ccfed.cli.stopping import Stopping
from ccfed.data import Federation
from ccfed.models.mlp import mlp
from ccfed.records import RoundRecord
from ccfed.simulation import Experiment, Running, Simulation
from ccfed.training import OneByOne


class Noting:
    """Notes what it is told under its name, and fails where it is asked to."""

    def __init__(self, name: str, told: list[str], fails_at: str = "") -> None:
        self.name, self.told, self.fails_at = name, told, fails_at

    def _note(self, what: str) -> None:
        if what == self.fails_at:
            raise OSError(errno.ENOSPC, f"no room for {self.name}")
        self.told.append(f"{self.name} {what}")

    def on_start(self, simulation: Simulation) -> None:
        self._note("start")

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        self._note("round")

    def on_end(self, simulation: Simulation) -> None:
        self._note("end")


@pytest.fixture
def watched(digits_of_8: Federation) -> Callable[..., None]:
    def call(*observers: Noting) -> None:
        e = Experiment(methods.fedavg(), digits_of_8, mlp, rounds=1, steps=1)
        Simulation([e], lambda task, jobs: OneByOne(task), torch.device("cpu"), observers).run()

    return call


def test_the_end_is_told_in_order(watched: Callable[..., None]) -> None:
    told: list[str] = []
    watched(Noting("a", told), Noting("b", told))
    assert told == ["a start", "b start", "a round", "b round", "a end", "b end"]


@pytest.mark.parametrize(
    ("fails_at", "expected"),
    [
        ("start", ["a start", "a end"]),
        ("round", ["a start", "b start", "c start", "a round", "a end", "b end", "c end"]),
        ("end", ["a start", "b start", "c start", "a round", "b round", "c round", "a end", "c end"]),
    ],
)
def test_who_began_hears_of_the_end_though_another_fails(
    watched: Callable[..., None], fails_at: str, expected: list[str]
) -> None:
    told: list[str] = []
    with pytest.raises(OSError, match="no room for b"):
        watched(Noting("a", told), Noting("b", told, fails_at), Noting("c", told))
    assert told == expected


class Busy:
    """A stream that is in the middle of a write."""

    def write(self, text: str) -> int:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    def flush(self) -> None:
        pass


def test_a_signal_that_comes_while_something_is_printed_is_noted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    monkeypatch.setattr("sys.stderr", Busy())
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGINT)
    assert stopping.code == 130
