"""What the folder of a run tells, also while the run is on its way, after it broke off, or with a damaged file."""

import csv
import json
import tomllib
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccfed.records import COLUMNS

FloatArray = NDArray[np.float64]
# What federation.npz may hold: dimensions and kinds of numbers; another array is not used.
NUMBERS = ("f", "i", "u")
SHAPES = {
    "p": {(1, kind) for kind in NUMBERS},
    "parameters": {(0, kind) for kind in NUMBERS},
    "step_flops": {(0, kind) for kind in NUMBERS},
    "counts": {(2, kind) for kind in NUMBERS},
    "classes": {(1, "U")},
}
# NumPy's and zipfile's ways of saying that a file is damaged.
UNREADABLE = (OSError, ValueError, EOFError, KeyError, AttributeError, RuntimeError)
DEEPEST = 2  # levels below a given folder in which runs are looked for


@dataclass(frozen=True, eq=False)
class FolderRun:
    """One run as its folder tells it.

    `settings` is what experiment.toml holds, `rounds` the columns of rounds.csv (float64 [rounds] each), `federation`
    the arrays of federation.npz and `summary` what summary.json holds; a file that is missing or damaged gives an empty
    dictionary. `troubles` has one sentence for each damaged file.
    """

    folder: Path
    settings: dict[str, Any]
    rounds: dict[str, FloatArray]
    federation: dict[str, NDArray[Any]]
    summary: dict[str, Any]
    troubles: tuple[str, ...]

    @property
    def method(self) -> str:
        """The method's name; the folder's, if no file tells it."""
        return str(self.summary.get("method") or self.settings.get("method") or self.folder.resolve().name)

    @property
    def seed(self) -> int | None:
        """The seed, if a file tells it."""
        seed = self.summary.get("seed", self.settings.get("seed"))
        return seed if isinstance(seed, int) else None

    @property
    def played(self) -> int:
        """The number of rounds in rounds.csv."""
        return len(self.rounds["round"])

    @property
    def planned(self) -> int | None:
        """The number of rounds that were wanted, if a file tells it."""
        planned = self.settings.get("rounds")
        if isinstance(planned, int):
            return planned
        return self.played if self.summary.get("finished") is True else None

    @property
    def finished(self) -> bool:
        """Whether all the rounds that were wanted are there."""
        return self.played > 0 and self.planned is not None and self.played >= self.planned

    @property
    def clients(self) -> int | None:
        """The number of clients, if a file tells it."""
        if "p" in self.federation:
            return len(self.federation["p"])
        clients = self.settings.get("clients")
        return clients if isinstance(clients, int) else None

    def total(self, name: str) -> float:
        """The sum over all rounds of a column of rounds.csv."""
        return float(self.rounds[name].sum())

    @property
    def compute_saved(self) -> float | None:
        """The share, 0..1, of the client-steps so far that full training of everyone selected would have taken more."""
        steps = self.settings.get("steps")
        if isinstance(steps, int) and self.total("selected") * steps > 0:
            return 1 - self.total("client_steps") / (self.total("selected") * steps)
        saved = self.summary.get("compute_saved")
        return float(saved) if isinstance(saved, int | float) else None

    @property
    def flops(self) -> float | None:
        """Estimated floating-point operations of all client-steps so far."""
        step = self.federation.get("step_flops")
        return None if step is None else float(step.item()) * self.total("client_steps")


def find_runs(folders: Iterable[Path]) -> list[Path]:
    """The folders of the runs that are, or are inside, the given `folders`: those that hold a rounds.csv, each once."""
    found: dict[Path, Path] = {}
    wanted = list(folders)
    if not wanted:
        raise ValueError("DIR is missing: give the folder of a run, or of a comparison, or several")
    for folder in wanted:
        if not folder.is_dir():
            raise ValueError(f"DIR is {str(folder)!r}, which is no folder: give the folder of a run or of a comparison")
        inside = _runs_in(folder)
        if not inside:
            raise ValueError(
                f"DIR is {str(folder)!r}, which holds no run: there is no rounds.csv in it or in the folders inside"
            )
        found |= {path.resolve(): path for path in inside if path.resolve() not in found}
    return list(found.values())


def _runs_in(folder: Path) -> list[Path]:
    patterns = ("*/" * depth + "rounds.csv" for depth in range(DEEPEST + 1))
    return sorted(path.parent for pattern in patterns for path in folder.glob(pattern) if path.is_file())


def read_run(folder: Path) -> FolderRun:
    """Reads what there is of a run in `folder`."""
    troubles: list[str] = []
    return FolderRun(
        folder,
        _toml(folder / "experiment.toml", troubles),
        _rounds(folder / "rounds.csv", troubles),
        _fitting(_arrays(folder / "federation.npz", troubles)),
        _json(folder / "summary.json", troubles),
        tuple(troubles),
    )


def _rounds(path: Path, troubles: list[str]) -> dict[str, FloatArray]:
    # A row that was being written when the run was killed may be torn: what stands before it is good.
    rows: list[Sequence[float]] = []
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            reader = csv.DictReader(file)
            missing = set(COLUMNS).difference(reader.fieldnames or COLUMNS)
            if missing:
                raise ValueError(f"there is no column {min(missing)!r}")
            for row in reader:
                rows.append([float(row[name]) for name in COLUMNS])
    except (OSError, KeyError, TypeError, ValueError, csv.Error):
        troubles.append(f"{path.name} cannot be read from row {len(rows) + 1} on: what stands before it is shown")
    table = np.array(rows, dtype=np.float64).reshape(-1, len(COLUMNS))
    return dict(zip(COLUMNS, table.T, strict=True))


def _toml(path: Path, troubles: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        troubles.append(f"{path.name} cannot be read")
        return {}


def _json(path: Path, troubles: list[str]) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        troubles.append(f"{path.name} cannot be read")
        return {}
    return told if isinstance(told, dict) else {}


def _arrays(path: Path, troubles: list[str]) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {str(name): arrays[name] for name in arrays.files}
    except FileNotFoundError:
        return {}
    except (*UNREADABLE, zipfile.BadZipFile, zlib.error):
        troubles.append(f"{path.name} cannot be read")
        return {}


def _fitting(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: a for name, a in arrays.items() if name in SHAPES and (a.ndim, a.dtype.kind) in SHAPES[name]}


def read_participation(run: FolderRun) -> dict[str, NDArray[Any]]:
    """The arrays of participation.npz, which may be large and are therefore read only when needed; empty if the file is
    missing, damaged or of another federation."""
    arrays, clients = _arrays(run.folder / "participation.npz", []), run.clients
    if clients is None:
        return {}
    kinds = ("selected", "trained")
    if all(kind in arrays for kind in kinds):
        shapes = {arrays[kind].shape for kind in kinds}
        fits = len(shapes) == 1 and len(shape := shapes.pop()) == 2 and shape[1] == clients
        return arrays if fits and all(arrays[kind].dtype == np.bool_ for kind in kinds) else {}
    if all(f"{kind}_{part}" in arrays for kind in kinds for part in ("ids", "starts")):
        lists = [(arrays[f"{kind}_ids"], arrays[f"{kind}_starts"]) for kind in kinds]
        same_rounds = len(lists[0][1]) == len(lists[1][1])
        return arrays if same_rounds and all(_are_lists(ids, starts, clients) for ids, starts in lists) else {}
    return {}


def _are_lists(ids: NDArray[Any], starts: NDArray[Any], clients: int) -> bool:
    """Whether `ids` are client numbers, and `starts` says where each round's begin."""
    if not (ids.ndim == starts.ndim == 1 and ids.dtype.kind in "iu" and starts.dtype.kind in "iu" and len(starts)):
        return False
    whole = starts[0] == 0 and starts[-1] == len(ids) and bool((starts[:-1] <= starts[1:]).all())
    return whole and (not len(ids) or (int(ids.min()) >= 0 and int(ids.max()) < clients))
