"""Finished runs on disk: one line of JSON a run in `cells.jsonl`, written when the run ends."""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccfed.paper.plan import Cell, Entry, key_of
from ccfed.records import RoundRecord

FILE = "cells.jsonl"


@dataclass(frozen=True)
class Finished:
    """What a run came to. `accuracy` (percent, two decimals) and `client_steps` have one number a round; `diverged`
    says what happened if the rounds ended early; `extra` holds what a probe measured, `made` where and when it was
    run."""

    key: str
    settings: dict[str, Any]
    rounds: int
    accuracy: tuple[float, ...]
    client_steps: tuple[int, ...]
    client_steps_full: int
    bytes_up: int
    bytes_down: int
    storage_client_bytes: int
    storage_server_bytes: int
    parameters: int
    seconds: float
    probe: str = ""
    diverged: str | None = None
    chance: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def curve(self) -> NDArray[np.float64]:
        """Accuracy after each round: float64 [rounds]. From the round on in which it diverged, the accuracy of
        guessing, which is what a model of NaN gives."""
        rest = self.rounds - len(self.accuracy)
        return np.array([*self.accuracy, *(self.chance for _ in range(rest))], dtype=np.float64)

    def measure(self, which: str) -> float:
        """The number called `which`: last, best, mean_last_10, or the accuracy after some of the rounds: @n after n,
        @1/n after an n-th of all."""
        curve = self.curve
        if which == "last":
            return float(curve[-1])
        if which == "best":
            return float(curve.max())
        if which == "mean_last_10":
            return float(curve[-10:].mean())
        if which.startswith("@1/"):
            return float(curve[max(self.rounds // int(which[3:]), 1) - 1])
        if which.startswith("@"):
            return float(curve[min(int(which[1:]), len(curve)) - 1])
        raise ValueError(f"{which!r} is no measure: it must be last, best, mean_last_10 @ROUND or @1/PARTS")


def summed(records: list[RoundRecord]) -> dict[str, Any]:
    """The fields of a Finished that come from its rounds."""
    return {
        "accuracy": tuple(round(record.accuracy, 2) for record in records),
        "client_steps": tuple(record.client_steps for record in records),
        "bytes_up": sum(record.bytes_up for record in records),
        "bytes_down": sum(record.bytes_down for record in records),
        "seconds": round(sum(record.seconds for record in records), 3),
    }


class Store:
    """The finished runs in a folder. A line that was cut off by a crash is passed over, and its run made again."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._finished: dict[str, Finished] = {}
        self._probed: dict[str, Finished] = {}  # runs with a probe, by the key of the same run without
        if self.path.exists():
            for line in self.path.read_bytes().splitlines():
                run = _read(line)
                if run is not None:
                    self._know(run)

    def __len__(self) -> int:
        return len(self._finished)

    def __iter__(self) -> Iterator[Finished]:
        return iter(self._finished.values())

    def get(self, cell: Cell) -> Finished | None:
        """The result of a cell, None if it has not been run; that of the same run with a probe will do."""
        found = self._finished.get(cell.key)
        return found if found is not None or cell.probe else self._probed.get(cell.key)

    def missing(self, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
        """Those of `cells` that have not been run."""
        return tuple(cell for cell in cells if self.get(cell) is None)

    def of(self, entry: Entry) -> list[Finished]:
        """The finished runs of an entry, in the order of its seeds."""
        found = (self.get(cell) for cell in entry.cells)
        return [run for run in found if run is not None]

    def values(self, entry: Entry) -> list[float]:
        """The entry's number in each of its finished runs."""
        return [run.measure(entry.measure) for run in self.of(entry)]

    def mean(self, entry: Entry) -> float:
        """The mean of `values`, NaN if there is none."""
        values = self.values(entry)
        return float(np.mean(values)) if values else math.nan

    def deviation(self, entry: Entry) -> float:
        """The standard deviation of `values` over the seeds, NaN if there are fewer than two."""
        values = self.values(entry)
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan

    def add(self, run: Finished) -> None:
        """Appends a run: one write of one line, on the disk when this returns."""
        line = json.dumps(asdict(run), separators=(",", ":"), allow_nan=False).encode() + b"\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            if file.tell() and not self._ends_with_newline():
                line = b"\n" + line  # what a crash cut off stays a line of its own
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._know(run)

    def _know(self, run: Finished) -> None:
        self._finished[run.key] = run
        if run.probe:
            self._probed[key_of(run.settings)] = run

    def _ends_with_newline(self) -> bool:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _read(line: bytes) -> Finished | None:
    try:
        values = json.loads(line)
        values["accuracy"], values["client_steps"] = tuple(values["accuracy"]), tuple(values["client_steps"])
        return Finished(**values)
    except (ValueError, TypeError, KeyError):
        return None
