"""What one sees while it runs, on terminals of several widths and elsewhere."""

import io
import re
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import ccfed
from ccfed import budgets, data, methods
from ccfed.records import RoundRecord
from ccfed.simulation.progress import ShowProgress, in_time, state_of


def record(**changes: Any) -> RoundRecord:
    usual = {"round": 0, "accuracy": 90.25, "loss": 0.3, "selected": 8, "trained": 5, "estimated": 3, "silent": 0}
    costs = {"client_steps": 100, "bytes_up": 1, "bytes_down": 1, "seconds": 0.1}
    return RoundRecord(**{**usual, **costs, **changes})


def test_the_state_is_told_in_as_many_words_as_there_is_room_for() -> None:
    one: Any = [(None, record())]
    assert state_of(one) == "accuracy 90.2 %, 5 trained, 3 estimated"
    assert state_of(one, 39) == "accuracy 90.2 %, 5 trained, 3 estimated"
    assert state_of(one, 38) == "90.2 %, 5 trained, 3 estimated"
    assert state_of(one, 10) == "90.2 %"
    many: Any = [(None, record()), (None, record(accuracy=88.0, trained=8, estimated=0))]
    assert state_of(many) == "2 federations, accuracy 88.0 to 90.2 %, 13 trained, 3 estimated"
    assert state_of(many, 50) == "2 runs, 88.0–90.2 %, 13 trained, 3 estimated"
    assert state_of(many, 40) == "88.0–90.2 %, 13 trained, 3 estimated"
    assert state_of(many, 1) == "88.0–90.2 %"


def shown(console: Console, seeds: int = 2) -> None:
    p = budgets.levels(4, 4)
    ccfed.simulate(
        data.load("digits").split(data.iid(), clients=4, seed=0),
        [methods.fedavg(), methods.cc_fedavg(p)],
        rounds=4,
        steps=1,
        engine="one-by-one",
        seeds=range(seeds),
        observers=[ShowProgress(console)],
    )


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_terminal_shows_round_accuracy_who_trained_and_time_in_one_line(width: int) -> None:
    out = io.StringIO()
    shown(Console(file=out, force_terminal=True, width=width, color_system=None))
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n").split("\n")
    assert max(map(len, frames)) <= width
    last = [frame for frame in frames if frame.strip()][-1]
    who = r", \d+ trained, \d+ estimated" if width >= 80 else ""
    assert re.match(rf"round 4/4 ━{{8,}} .*\d+\.\d( to |–)\d+\.\d %{who} +took ", last), last


def test_elsewhere_there_are_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    shown(Console(file=io.StringIO(), force_terminal=False))
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"round {t}/4" for t in (1, 2, 3, 4)]
    assert lines[0].endswith(" left")
    assert re.search(r": 4 federations, accuracy .* %, 16 trained, 0 estimated", lines[0])
    assert ", took " in lines[3]


def test_a_run_that_goes_on_reckons_with_the_rounds_that_it_plays() -> None:
    progress = ShowProgress(Console(file=io.StringIO(), force_terminal=False))
    state = SimpleNamespace(round=90)
    running = SimpleNamespace(state=state, experiment=SimpleNamespace(rounds=100))
    simulation: Any = SimpleNamespace(running=[running])
    progress.on_start(simulation)
    progress._began -= 20.0
    assert progress._time(95) == "20 s left"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (60, "1 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h 00 min"),
        (90061, "25 h 01 min"),
    ],
)
def test_times_are_told_as_one_reads_them(seconds: float, words: str) -> None:
    assert in_time(seconds) == words
