"""A federation of very many clients: what a round does, keeps and writes follows who takes part, not how many there
are."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ccfed import budgets, data, methods
from ccfed.algorithm.methods import METHODS
from ccfed.models.network import MODELS
from ccfed.simulation import Experiment, Running, Simulation
from ccfed.simulation.checkpoint import Checkpoint
from ccfed.simulation.memory import bytes_of_pasts, free_on_host, space_for
from ccfed.simulation.settings import sizes_of
from ccfed.training import OneByOne

CPU = torch.device("cpu")
CLIENTS = 100_000


class LongTensors(TorchDispatchMode):
    """Notes every operation that makes a new tensor of at least so many elements."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length, self.found = length, set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = {id(each) for each in torch.utils._pytree.tree_leaves((args, kwargs))}
        for made in torch.utils._pytree.tree_leaves(out):
            view = isinstance(made, torch.Tensor) and made._is_view()
            if isinstance(made, torch.Tensor) and made.numel() >= self.length and id(made) not in given and not view:
                self.found.add(f"{func} {tuple(made.shape)}")
        return out


def linear(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model with few parameters, so that the moves of a round are shorter than the federation."""
    return nn.Linear(shape[0], classes)


def huge(name: str = "cc-fedavg", clients: int = CLIENTS, **settings: Any) -> Experiment:
    p = budgets.levels(clients, 4)
    method = METHODS[name]() if name == "fedavg" else METHODS[name](p)
    federation = data.synthetic(2 * clients, features=4, test_samples=10).split(data.iid(), clients)
    choices = {"rounds": 12, "steps": 1, "batch_size": 2, "participation": 50 / clients, **settings}
    return Experiment(method, federation, linear, **choices)


@pytest.mark.parametrize("name", sorted(METHODS.keys() - {"mifa"}))
def test_no_round_and_no_checkpoint_makes_a_tensor_as_long_as_the_federation(name: str, tmp_path: Path) -> None:
    """MIFA is left out: it asks everyone who ever took part."""
    e = huge(name)
    running = Running(e, e.make_network().flat(), 0)
    checkpoint = Checkpoint.of(tmp_path, running)

    def round() -> None:
        jobs = running.begin_round()
        running.record(running.end_round(torch.ones(len(jobs), len(running.state.model))), 1.0, 2.0, 3.0)
        checkpoint.save(running)

    round()  # the first one may prepare something
    with LongTensors(CLIENTS) as long:
        for _ in range(8):
            round()
    assert long.found == set()


def test_long_tensors_would_be_noticed() -> None:
    with LongTensors(10) as long:
        torch.zeros(20)[:5].clone()
        torch.arange(9).clone()
    assert len(long.found) == 1


def test_a_checkpoint_writes_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ccfed.simulation import segments

    monkeypatch.setattr(segments, "SMALL_BYTES", 0)
    e = huge()
    running = Running(e, e.make_network().flat(), 0)
    checkpoint = Checkpoint.of(tmp_path, running)
    width = running.state.model.nbytes
    for _ in range(10):
        before = {path.name for path in tmp_path.iterdir()}
        jobs = running.begin_round()
        running.record(running.end_round(torch.ones(len(jobs), width // 4)), 1.0, 2.0, 3.0)
        checkpoint.save(running)
        new = [path for path in tmp_path.iterdir() if path.name not in before and "state" not in path.name]
        assert sum(path.stat().st_size for path in new) < len(jobs) * (width + 100) + 1000
        assert (tmp_path / "state.safetensors").stat().st_size < 100_000


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("auto", None),
        ("device", (float("inf"), 0)),
        ("host", (0, float("inf"))),
        ("8GB,16GB", (8e9, 16e9)),
        ("0B, 1.5mb", (0, 1.5e6)),
    ],
)
def test_history_memory_is_read(text: str, sizes: tuple[float, float] | None) -> None:
    assert sizes_of(text) == sizes


@pytest.mark.parametrize("text", ["", "8GB", "8,16", "8GB,16GB,1GB", "-1GB,1GB", "cuda"])
def test_other_history_memory_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--history-memory is"):
        sizes_of(text)


def test_what_was_chosen_is_said_and_is_what_happens(tmp_path: Path) -> None:
    """On a processor the device's memory is the host's."""
    e = huge(rounds=40)
    most = bytes_of_pasts(e)
    assert most == 40 * 50 * e.make_network().size * 4
    said: list[str] = []
    space_for([e], "auto", CPU, tmp_path, said.append)
    space = space_for([e, e], "100kB,0B", CPU, tmp_path, said.append)
    assert said[0].startswith("pasts take up to 400.0 kB, in memory")
    assert said[1] == f"pasts take up to 800.0 kB: 100.0 kB in memory, 700.0 kB in memory-mapped files in {tmp_path}"
    Simulation([huge(rounds=2)], lambda task, jobs: OneByOne(task), CPU, space=space).run()
    assert space.used["device"] <= 100_000
    assert space.used["file"] > 0
    assert list(tmp_path.iterdir()) == []
    said.clear()
    space_for([huge("fedavg")], "auto", CPU, tmp_path, said.append)
    assert said == []


def test_memory_that_a_container_may_not_use_is_not_free(tmp_path: Path) -> None:
    free = free_on_host(tmp_path)
    assert free > 10**6
    old = tmp_path / "memory"
    old.mkdir()
    for name, text in (("limit_in_bytes", "900000"), ("usage_in_bytes", "600000"), ("stat", "total_inactive_file 7\n")):
        (old / f"memory.{name}").write_text(text)
    assert free_on_host(tmp_path) == 300_007
    for name, text in (("max", "max"), ("current", "600000"), ("stat", "anon 1\ninactive_file 9\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_on_host(tmp_path) == 300_007, "no limit"
    (tmp_path / "memory.max").write_text("600001\n")
    assert free_on_host(tmp_path) == 10
    (tmp_path / "memory.max").write_text("5\n")
    assert free_on_host(tmp_path) == 0


def test_pasts_in_half_precision_take_half_and_change_little(digits_of_8: data.Federation) -> None:
    method = methods.cc_fedavg(budgets.levels(8, 4))
    e = Experiment(method, digits_of_8, MODELS["mlp"], rounds=20, steps=5)
    runs = []
    for dtype in (None, torch.bfloat16):
        simulation = Simulation([e], lambda task, jobs: OneByOne(task), CPU, store_dtype=dtype)
        simulation.run()
        runs.append(simulation.running[0])
    whole, half = runs
    assert half.storage_bytes()[0] * 2 == whole.storage_bytes()[0]
    change = (whole.state.model - half.state.model).norm() / whole.state.model.norm()
    assert 0 < change < 0.01


@pytest.mark.slow
def test_a_million_clients_run_from_the_command_line_in_bounded_memory(tmp_path: Path) -> None:
    options = "run --data synthetic --clients 1000000 --participation 0.001 --rounds 12 --steps 1"
    options += " --history-memory 0B,20MB --checkpoint-every 0"
    made = subprocess.run(
        [sys.executable, "-c", "from ccfed.cli import main; main()", *options.split(), "--out", tmp_path / "run"],
        capture_output=True,
        text=True,
        check=True,
        env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    assert "20.0 MB in memory, 45.3 MB in memory-mapped files" in made.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["rounds"] == 12
    with np.load(tmp_path / "run" / "participation.npz") as who:
        assert len(who["selected_ids"]) == 12_000
        assert len(who["bytes_up"]) == 1_000_000
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1.5e6  # kB
    size = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*"))
    assert size < 200e6


@pytest.mark.slow
def test_the_script_of_the_tables_makes_a_row_for_each_size() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "scale.py"
    words = ["--clients", "30", "60", "--selected", "20", "--rounds", "2", "--steps", "1", "--history-memory", "0B,0B"]
    made = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=True)
    head, _, first, second, *_ = made.stdout.splitlines()
    assert head.startswith("| clients | s a round |")
    assert first.startswith("| 30 |")
    assert second.startswith("| 60 |")
    assert "in memory-mapped files in the run's folder" in second
