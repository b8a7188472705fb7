"""Long curves and large maps made small enough for a page: chosen rounds, and averages over neighbouring clients."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccfed.report.reading import FloatArray, FolderRun, read_participation

POINTS = 40_000  # points of curves on a page, all together
FEWEST, MOST = 40, 500  # points of one curve
ROWS, SPANS, CLASSES = 128, 256, 128  # of a map: bins of clients, spans of rounds, spans of classes


def chosen_rounds(rounds: int, curves: int) -> NDArray[np.int64]:
    """The rounds (0, 1, ...) that are drawn of `rounds`, evenly spread with the first and the last; fewer where there
    are many `curves`."""
    points = int(np.clip(POINTS // max(curves, 1), FEWEST, MOST))
    if rounds <= points:
        return np.arange(rounds)
    return np.unique(np.linspace(0, rounds - 1, points).round().astype(np.int64))


@dataclass(frozen=True)
class Bins:
    """`count` things in at most `limit` equal runs of neighbours: `starts` int64 [bins] and `sizes` int64 [bins]."""

    count: int
    limit: int

    @property
    def step(self) -> int:
        """The number of things in each run but the last."""
        return max(-(-self.count // self.limit), 1)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each run starts."""
        return np.arange(0, self.count, self.step)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many things each run has."""
        return np.diff(np.append(self.starts, self.count))

    def sums(self, values: NDArray[np.generic], axis: int = 0) -> FloatArray:
        """The sum of each run of `values` along `axis`."""
        if not len(self.starts):
            return np.zeros((0, *values.shape[1:]))
        out: FloatArray = np.add.reduceat(values.astype(np.float64), self.starts, axis)
        return out


@dataclass(frozen=True, eq=False)
class TookPart:
    """How often clients were selected and how often they trained, in `bins` of clients and `spans` of rounds: both
    float64 [bins of clients, spans of rounds]."""

    bins: Bins
    spans: Bins
    selected: FloatArray
    trained: FloatArray


def took_part(run: FolderRun, rows: int = ROWS, columns: int = SPANS) -> TookPart | None:
    """Who was selected and who trained when; None as long as the run has not left a whole participation.npz."""
    told, clients = read_participation(run), run.clients
    if not told or not clients:
        return None
    rounds = len(told["selected"]) if "selected" in told else len(told["selected_starts"]) - 1
    bins, spans = Bins(clients, rows), Bins(rounds, columns)
    if rounds < 1:
        return None
    selected, trained = (_counted(told, kind, bins, spans) for kind in ("selected", "trained"))
    return TookPart(bins, spans, selected, trained)


def _counted(told: dict[str, NDArray[Any]], kind: str, bins: Bins, spans: Bins) -> FloatArray:
    """One span of rounds after another, since the whole may be large."""
    columns = []
    for first, size in zip(spans.starts.tolist(), spans.sizes.tolist(), strict=True):
        if kind in told:
            of_clients = told[kind][first : first + size].sum(0)
        else:
            begin, end = told[f"{kind}_starts"][[first, first + size]].astype(np.int64)
            of_clients = np.bincount(told[f"{kind}_ids"][begin:end].astype(np.int64), minlength=bins.count)
        columns.append(bins.sums(of_clients))
    return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Held:
    """Samples of each class at each client, means over `bins` of clients, sums over `spans` of classes: `counts`
    float64 [bins of clients, spans of classes]; `classes` names the spans."""

    bins: Bins
    spans: Bins
    counts: FloatArray
    classes: tuple[str, ...]


def held(run: FolderRun, rows: int = ROWS, columns: int = CLASSES) -> Held | None:
    """Who holds what; None if the folder does not tell it."""
    counts = run.federation.get("counts")
    if counts is None or not counts.size:
        return None
    names = [str(name) for name in run.federation.get("classes", ())]
    if len(names) != counts.shape[1]:
        names = [str(number) for number in range(counts.shape[1])]
    bins, spans = Bins(counts.shape[0], rows), Bins(counts.shape[1], columns)
    means = spans.sums(bins.sums(counts) / bins.sizes[:, None], axis=1)
    ends = spans.starts + spans.sizes - 1
    labels = [names[a] if a == b else f"{names[a]} to {names[b]}" for a, b in zip(spans.starts, ends, strict=True)]
    return Held(bins, spans, means, tuple(labels))
