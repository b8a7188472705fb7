"""A server that ends anywhere goes on from its last checkpoint as if nothing had been."""

import shutil
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, MetricRecord
from small_app import CLIENTS, STEPS, App, vector
from test_same_as_simulation import METHODS

from ccfed import budgets, methods
from ccfed.data import Federation
from ccfed.files import Damaged
from ccfed.flower import CCFedAvg, InProcessGrid
from ccfed.records import read_rounds

P = budgets.levels(CLIENTS, beta=4)
ROUNDS = 7


class Killed(BaseException):
    """The server's process ends."""


def strategy(method: object = P, **choices: object) -> CCFedAvg:
    standard = {"clients": CLIENTS, "seed": 5, "steps": STEPS, "fraction_evaluate": 0}
    return CCFedAvg(method, **(standard | choices))  # type: ignore[arg-type]


def killed_after(rounds: int) -> object:
    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round == rounds:
            raise Killed
        return None

    return evaluate


def go(made: CCFedAvg, app: App, first: ArrayRecord, folder: Path, **choices: object) -> torch.Tensor:
    result = made.start(InProcessGrid(app.app, CLIENTS), first, num_rounds=ROUNDS, folder=folder, **choices)
    return vector(result.arrays)


@pytest.mark.parametrize("name", ["cc-fedavg", "strategy-2", "momentum", "noting", "shrinking", "fedopt"])
@pytest.mark.parametrize("keep", ["client", "mixed"])
def test_a_resumed_run_equals_the_straight_one_to_the_bit(
    federation: Federation,
    first: ArrayRecord,
    name: str,
    keep: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = METHODS[name].but(keep=keep)
    monkeypatch.setenv("CCFED_DEVICES", str(tmp_path / "devices-1"))
    straight = go(strategy(method), App(federation), first, tmp_path / "straight")
    monkeypatch.setenv("CCFED_DEVICES", str(tmp_path / "devices-2"))
    app, folder = App(federation), tmp_path / "resumed"
    for rounds in (2, 5):  # the round in which the server ends is asked again
        with pytest.raises(Killed):
            go(strategy(method), app, first, folder, resume=rounds == 5, evaluate_fn=killed_after(rounds))
    assert torch.equal(go(strategy(method), app, first, folder, resume=True), straight)
    rounds, as_before = (read_rounds(tmp_path / which / "rounds.csv") for which in ("resumed", "straight"))
    same = ("round", "selected", "trained", "estimated", "silent", "client_steps")
    assert [[getattr(r, f) for f in same] for r in rounds] == [[getattr(r, f) for f in same] for r in as_before]
    devices = (folder / "devices.csv").read_text().splitlines()
    assert len(devices) == 1 + ROUNDS * CLIENTS


def test_a_round_that_is_asked_again_costs_the_devices_no_training(
    federation: Federation, first: ArrayRecord, tmp_path: Path
) -> None:
    app, folder = App(federation), tmp_path / "run"
    with pytest.raises(Killed):
        go(strategy(), app, first, folder, evaluate_fn=killed_after(3))
    made = strategy()
    go(made, app, first, folder, resume=True)
    assert len(app.trained) == len(set(app.trained)) == sum(record.trained for record in made.journal.records)
    assert made.journal.counts["repeated"] > 0


def test_what_the_owners_decided_is_remembered(federation: Federation, first: ArrayRecord, tmp_path: Path) -> None:
    configs = [{"partition-id": i, "ccfed-p": 0.25, "ccfed-schedule": "round-robin"} for i in range(3)]
    app, folder = App(federation), tmp_path / "run"
    fresh = [1.0] * 3
    with pytest.raises(Killed):
        CCFedAvg(fresh, keep="server", fraction_evaluate=0).start(
            InProcessGrid(app.app, configs), first, num_rounds=6, folder=folder, evaluate_fn=killed_after(2)
        )
    # Nobody is there any more to say so, and nobody need be: the server knows that all of them skip.
    made = CCFedAvg(fresh, keep="server", fraction_evaluate=0, min_available_nodes=0)
    made.start(InProcessGrid(app.app, []), first, num_rounds=4, folder=folder, resume=True)
    assert [record.estimated for record in made.journal.records] == [0, 3, 3, 3]


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_it(
    federation: Federation, first: ArrayRecord, tmp_path: Path
) -> None:
    app, folder = App(federation), tmp_path / "run"
    with pytest.raises(Killed):
        go(strategy(keep="server"), app, first, folder, evaluate_fn=killed_after(4))
    file = folder / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    made = strategy(keep="server")
    resumed = go(made, app, first, folder, resume=True)
    assert torch.equal(resumed, go(strategy(keep="server"), app, first, tmp_path / "straight"))
    (folder / "checkpoint.safetensors").write_bytes(b"nothing")
    (folder / "checkpoint.previous.safetensors").unlink()
    with pytest.raises(Damaged):
        go(strategy(keep="server"), app, first, folder, resume=True)


def test_only_the_same_run_goes_on(federation: Federation, first: ArrayRecord, tmp_path: Path) -> None:
    app, folder = App(federation), tmp_path / "run"
    with pytest.raises(Killed):
        go(strategy(), app, first, folder, evaluate_fn=killed_after(2))
    for changed, what in (
        (strategy(seed=6), "seed 5"),
        (strategy(keep="server"), "keep 'client'"),
        (strategy(methods.strategy_2(P)), "method 'cc-fedavg'"),
    ):
        with pytest.raises(ValueError, match=what):
            go(changed, app, first, folder, resume=True)
    other = ArrayRecord({"x": next(iter(first.values()))})
    with pytest.raises(ValueError, match="another model"):
        go(strategy(), app, other, folder, resume=True)
    with pytest.raises(ValueError, match="needs the folder"):
        strategy().start(InProcessGrid(app.app, CLIENTS), first, resume=True)


def test_resuming_before_the_first_checkpoint_starts_and_after_the_last_returns(
    federation: Federation, first: ArrayRecord, tmp_path: Path
) -> None:
    app, folder = App(federation), tmp_path / "run"
    model = go(strategy(), app, first, folder, resume=True)
    assert len(app.trained) > 0
    app.trained.clear()
    shutil.rmtree(tmp_path / "devices")
    assert torch.equal(go(strategy(), app, first, folder, resume=True), model)
    assert app.trained == []
