"""What simulations came to, in memory: one Run a method and seed, and Runs, the table and the curves of many."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccfed.records import RoundRecord
from ccfed.simulation.running import Running

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Run:
    """One federation's result: `records`, one a round, and sums over them. `client_steps_full` is what full training of
    everyone selected would have taken in these rounds; `model` is the last global model [parameters]."""

    name: str
    seed: int
    records: tuple[RoundRecord, ...]
    client_steps_full: int
    storage_client_bytes: int
    storage_server_bytes: int
    model: FloatArray

    @classmethod
    def of(cls, running: Running) -> "Run":
        """The result so far of a federation on its way."""
        e = running.experiment
        client, server = running.storage_bytes()
        model = running.state.model.detach().double().cpu().numpy()
        full = len(running.records) * e.steps * e.selected
        return cls(e.name, e.seed, tuple(running.records), full, client, server, model)

    def column(self, name: str) -> FloatArray:
        """One number a round: float64 [rounds]; `name` is a field of RoundRecord."""
        return np.array([getattr(record, name) for record in self.records], dtype=np.float64)

    @property
    def accuracy_last(self) -> float:
        """Test accuracy of the last global model, in percent."""
        return self.records[-1].accuracy

    @property
    def accuracy_best(self) -> float:
        """The best round's test accuracy, in percent."""
        return max(record.accuracy for record in self.records)

    def total(self, name: str) -> int:
        """The sum over all rounds of `client_steps`, `bytes_up` or `bytes_down`."""
        return int(sum(getattr(record, name) for record in self.records))

    @property
    def seconds(self) -> float:
        """Seconds that the rounds took."""
        return sum(record.seconds for record in self.records)

    @property
    def compute_saved(self) -> float:
        """The share of full training's client-steps that was not made, 0..1."""
        return 1 - self.total("client_steps") / self.client_steps_full


@dataclass(frozen=True, eq=False)
class Seeds:
    """The runs of one method, one a seed."""

    name: str
    runs: tuple[Run, ...]

    def column(self, name: str) -> FloatArray:
        """A RoundRecord's field for every seed and round: float64 [seeds, rounds]."""
        return np.stack([run.column(name) for run in self.runs])

    @property
    def accuracy(self) -> FloatArray:
        """Test accuracy in percent: float64 [seeds, rounds]."""
        return self.column("accuracy")

    @property
    def loss(self) -> FloatArray:
        """Test loss: float64 [seeds, rounds]."""
        return self.column("loss")


class Runs:
    """The results of several methods and seeds: `runs["cc-fedavg"].accuracy`, `runs.table()`,
    `runs.plot("accuracy")`."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.all = tuple(runs)

    @property
    def names(self) -> tuple[str, ...]:
        """The methods, in the order in which they were given."""
        return tuple(dict.fromkeys(run.name for run in self.all))

    def __getitem__(self, name: str) -> Seeds:
        chosen = tuple(run for run in self.all if run.name == name)
        if not chosen:
            raise KeyError(f"no run is called {name!r}; there are {', '.join(self.names)}")
        return Seeds(name, chosen)

    def __iter__(self) -> Iterator[Seeds]:
        return (self[name] for name in self.names)

    def __len__(self) -> int:
        return len(self.names)

    def table(self) -> "Table":
        """One row a method: accuracy, compute, traffic and storage, means over the seeds."""
        return Table([_row(seeds) for seeds in self])

    def plot(self, column: str = "accuracy", path: str | None = None) -> Any:
        """Curves of a RoundRecord's field, with a band of one standard deviation over seeds: a matplotlib Figure."""
        from ccfed.records import curves

        figure = curves(self, column)
        if path is not None:
            figure.savefig(path)
        return figure


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of equal keys; `str(table)` is its plain text, `text(width)` fits it to a terminal, `rows` has its values as
    they are."""

    rows: list[dict[str, Any]]

    def __str__(self) -> str:
        return self.text()

    def text(self, width: int | None = None) -> str:
        """The table as plain text; where it is wider than `width`, its columns go on below, after the first one."""
        if not self.rows:
            return ""
        parts = self._parts(width)
        if width is not None and len(parts) > 1:  # as many blocks as it needs, of much the same width
            parts = next(even for room in range(width + 1) if len(even := self._parts(room)) == len(parts))
        return "\n\n".join(self._block(names) for names in parts)

    def _parts(self, width: int | None) -> list[list[str]]:
        first, *others = self.rows[0]
        parts: list[list[str]] = [[first]]
        for name in others:
            if width is not None and len(parts[-1]) > 1 and self._width([*parts[-1], name]) > width:
                parts.append([first])
            parts[-1].append(name)
        return parts

    def _widths(self, names: Sequence[str]) -> list[int]:
        return [max(len(name), *(len(str(row[name])) for row in self.rows)) for name in names]

    def _width(self, names: Sequence[str]) -> int:
        return sum(self._widths(names)) + 2 * (len(names) - 1)

    def _block(self, names: Sequence[str]) -> str:
        widths = self._widths(names)
        body = [[str(row[name]) for name in names] for row in self.rows]
        return "\n".join(_line(cells, widths) for cells in (names, ["-" * width for width in widths], *body))

    def markdown(self) -> str:
        """The table as Markdown."""
        head = list(self.rows[0])
        lines = [head, ["---", *("---:" for _ in head[1:])], *([str(row[name]) for name in head] for row in self.rows)]
        return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _line(cells: Sequence[str], widths: list[int]) -> str:
    first = cells[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))]).rstrip()


def _row(seeds: Seeds) -> dict[str, Any]:
    runs = seeds.runs

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values))

    def spread(values: Sequence[float]) -> str:
        deviation = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
        return f"{mean(values):.2f}{deviation}"

    return {
        "method": seeds.name,
        "accuracy last %": spread([run.accuracy_last for run in runs]),
        "best %": spread([run.accuracy_best for run in runs]),
        "client-steps": f"{mean([run.total('client_steps') for run in runs]):,.0f}",
        "compute saved": f"{mean([run.compute_saved for run in runs]):.0%}",
        "up": in_bytes(mean([run.total("bytes_up") for run in runs])),
        "down": in_bytes(mean([run.total("bytes_down") for run in runs])),
        "stored by clients": in_bytes(mean([run.storage_client_bytes for run in runs])),
        "by server": in_bytes(mean([run.storage_server_bytes for run in runs])),
    }


def in_bytes(count: float) -> str:
    """A number of bytes as one reads it: 1.2 GB."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError
