"""What --tensorboard writes is read back as TensorBoard reads it."""

import csv
import sys
from pathlib import Path

import pytest

from ccfed import budgets, data, methods
from ccfed.cli import main
from ccfed.models.network import find_model
from ccfed.records import RoundRecord
from ccfed.simulation import Experiment, Running, Simulation
from ccfed.simulation.simulate import find_device
from ccfed.simulation.tensorboard import TAGS, TensorBoard
from ccfed.training import Engine, Jobs, Task
from ccfed.training.one_by_one import OneByOne

pytest.importorskip("tensorboard")
SMALL = ["--rounds=4", "--steps=2", "--clients=4", "--batch-size=16", "--engine=one-by-one"]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told = EventAccumulator(str(folder)).Reload()
    return {tag: [(event.step, event.value) for event in told.Scalars(tag)] for tag in told.Tags()["scalars"]}


def test_every_run_has_its_scalars(tmp_path: Path) -> None:
    out = tmp_path / "compared"
    words = ["compare", "--methods", "fedavg", "cc-fedavg", "--seeds", "0", "1", *SMALL, "--tensorboard"]
    assert main([*words, "--out", str(out)]) == 0
    for name in ("fedavg-seed-0", "fedavg-seed-1", "cc-fedavg-seed-0", "cc-fedavg-seed-1"):
        with (out / name / "rounds.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        told = scalars(out / name)
        assert set(told) == set(TAGS.values())
        for column, tag in TAGS.items():
            assert [step for step, _ in told[tag]] == [1, 2, 3, 4]
            assert [value for _, value in told[tag]] == pytest.approx([float(row[column]) for row in rows], rel=1e-5)


def test_no_event_files_unless_asked_for(tmp_path: Path) -> None:
    assert main(["run", *SMALL, "--out", str(tmp_path / "run")]) == 0
    assert not list(tmp_path.rglob("events.*"))


def test_without_the_package_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["run", *SMALL, "--tensorboard", "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert told == 'ccfed run: --tensorboard needs the package tensorboard: pip install "ccfed[tensorboard]"\n'
    assert not (tmp_path / "run").exists()


class StopAfter:
    """Stops a simulation after so many rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_start(self, simulation: Simulation) -> None:
        pass

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        simulation.stop_requested = played[0][1].round + 1 == self.rounds

    def on_end(self, simulation: Simulation) -> None:
        pass


def test_a_run_that_goes_on_has_each_round_once(tmp_path: Path) -> None:
    federation = data.load("digits").split(data.iid(), clients=4, seed=0)
    method = methods.cc_fedavg(budgets.levels(4, 4))
    experiment = Experiment(method, federation, find_model("mlp"), rounds=6, steps=1, batch_size=16)

    def engine(task: Task, jobs: Jobs) -> Engine:
        return OneByOne(task)

    writes = TensorBoard({("cc-fedavg", 0): tmp_path})
    simulation = Simulation([experiment], engine, find_device("cpu"), [writes, StopAfter(3)])
    simulation.run()
    assert len(scalars(tmp_path)["test/loss"]) == 3
    simulation.stop_requested = False
    simulation.run()
    accuracies = [(record.round + 1, pytest.approx(record.accuracy)) for record in simulation.running[0].records]
    assert len(accuracies) == 6
    assert scalars(tmp_path)["test/accuracy"] == accuracies
