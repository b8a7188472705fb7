"""What every peer is given: the same data, the same clients, the same settings, the same stopwatch (NumPy only).

A peer's script reads its settings with `from_command_line`, calls `Stopwatch.lap` with the test accuracy after
each round and ends with `Stopwatch.report`, which prints the one JSON line that `run.py` collects.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

CIFAR_MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32)
CIFAR_STD = np.array([0.2023, 0.1994, 0.2010], np.float32)


@dataclass(frozen=True)
class Workload:
    """One run's settings; `rounds` counts the warm-up round, which is run but not timed."""

    name: str
    data_dir: str
    rounds: int
    steps: int
    clients: int
    per_round: int
    batch_size: int
    lr: float = 0.01
    seed: int = 0
    threads: int = 1
    processes: int = 1
    engine: str = ""


DEFAULTS = {
    "fmnist-mlp": {"rounds": 6, "steps": 200, "clients": 100, "per_round": 20, "batch_size": 32},
    "cifar-cnn": {"rounds": 4, "steps": 100, "clients": 8, "per_round": 8, "batch_size": 64},
}


def from_command_line() -> Workload:
    """The workload named by `--workload`, with any of its settings replaced by the option of the same name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", dest="name", choices=DEFAULTS, required=True)
    parser.add_argument("--data-dir", required=True)
    for setting, kind in {"lr": float, "engine": str}.items():
        parser.add_argument(f"--{setting}", type=kind)
    for setting in ("rounds", "steps", "seed", "threads", "processes"):
        parser.add_argument(f"--{setting}", type=int)
    given = {key: value for key, value in vars(parser.parse_args()).items() if value is not None}
    return Workload(**{**DEFAULTS[given["name"]], **given})


class Arrays(NamedTuple):
    """Training and test set: images uint8 (N x 1 x 28 x 28 or N x 3 x 32 x 32), labels int64."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


@lru_cache(maxsize=1)
def load(name: str, data_dir: str) -> Arrays:
    """The arrays that `run.py` left in `data_dir`, one .npy file each."""
    return Arrays(*(np.load(Path(data_dir) / name / f"{part}.npy") for part in Arrays._fields))


@lru_cache(maxsize=1)
def partition(workload: Workload) -> tuple[np.ndarray, ...]:
    """Each client's training images, by index: two random label shards (MLP) or a random eighth of all (CNN)."""
    labels = load(workload.name, workload.data_dir).train_y
    draw = np.random.default_rng(workload.seed)
    if workload.name == "fmnist-mlp":
        shards = np.argsort(labels, kind="stable").reshape(2 * workload.clients, -1)
        return tuple(shards[draw.permutation(2 * workload.clients)].reshape(workload.clients, -1))
    return tuple(np.array_split(draw.permutation(len(labels)), workload.clients))


@dataclass
class Stopwatch:
    """Whole rounds, evaluation included: started before the first round, one lap a round."""

    workload: Workload
    accuracies: list[float] = field(default_factory=list)
    laps: list[float] = field(default_factory=list)
    since: float = field(default_factory=time.perf_counter)

    def start(self) -> None:
        """Start again, for a peer that sets up much after the watch was made."""
        self.since = time.perf_counter()

    def lap(self, accuracy: float) -> None:
        """End of a round; `accuracy` is the global model's share of right answers on the whole test set."""
        self.laps.append(time.perf_counter() - self.since)
        self.accuracies.append(float(accuracy))
        self.since = time.perf_counter()

    def report(self) -> None:
        """The JSON line: client-steps of a round, seconds of each round after the first, accuracy of each round."""
        if len(self.laps) != self.workload.rounds:
            raise SystemExit(f"{self.workload.rounds} rounds were asked for and {len(self.laps)} were run")
        settings = {f.name: getattr(self.workload, f.name) for f in fields(self.workload) if f.name != "data_dir"}
        per_round = self.workload.per_round * self.workload.steps
        line = {"client_steps": per_round, "seconds": self.laps[1:], "accuracy": self.accuracies, **settings}
        print("\n" + json.dumps(line), flush=True)
