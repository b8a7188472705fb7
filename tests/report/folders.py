"""Reads a run's files the plain way, to be compared with what the report makes of them."""

import csv
from pathlib import Path
from typing import Any

import numpy as np


def rows_of(folder: Path) -> list[dict[str, str]]:
    """The rows of rounds.csv."""
    with (folder / "rounds.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def arrays_of(folder: Path, name: str) -> dict[str, Any]:
    """The arrays of an .npz file."""
    with np.load(folder / f"{name}.npz") as arrays:
        return dict(arrays)
