"""A table or figure of the paper as data: which numbers it has, which runs are behind each, what the paper says."""

import difflib
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ccfed.algorithm.methods import METHODS
from ccfed.paper.published import Published
from ccfed.simulation.settings import Settings, known

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ccfed.paper.store import Store

# These say where and how a run is made, not what comes out of it (but for rounding).
NOT_DECISIVE = ("data_dir", "device", "engine", "precision", "history_memory", "history_dtype")


@dataclass(frozen=True)
class Cell:
    """One run. `probe` names what is measured on the way beside the usual ("" for nothing)."""

    settings: Settings
    probe: str = ""

    @cached_property
    def key(self) -> str:
        """A name made of all that decides the result: equal cells, equal keys."""
        return key_of(self.described(), self.probe)

    def described(self) -> dict[str, Any]:
        """The settings that decide the result and differ from their defaults, and the seed."""
        defaults = Settings()
        values = {k: v for k, v in asdict(self.settings).items() if k not in NOT_DECISIVE}
        kept = {k: v for k, v in values.items() if v != getattr(defaults, k) or k in ("seed", "method", "data")}
        return {k: list(v) if isinstance(v, tuple) else v for k, v in kept.items()}


def key_of(described: dict[str, Any], probe: str = "") -> str:
    """The key of the cell that is described so and has this probe."""
    text = json.dumps([described, probe], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Entry:
    """One number: its place (`labels`, such as iid=0.1, method=CC-FedAvg), the runs behind it (`settings` with each of
    `seeds`), and which number of theirs it is.

    `measure` is last, best, mean_last_10, or the accuracy after so many rounds, such as "@50", or after a part of all
    rounds, such as "@1/4".
    """

    labels: tuple[tuple[str, str], ...]
    settings: Settings
    seeds: tuple[int, ...] = (0,)
    measure: str = "last"
    paper: Published | None = None
    probe: str = ""

    def label(self, name: str) -> str:
        """The value of a label, "" if the entry has none of this name."""
        return dict(self.labels).get(name, "")

    @property
    def rounds_read(self) -> int:
        """The round of a measure such as "@50", which a shorter run does not have; 0 for any other."""
        return int(self.measure[1:]) if self.measure[1:].isdigit() else 0

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Its runs, one a seed."""
        return tuple(Cell(replace(self.settings, seed=seed), self.probe) for seed in self.seeds)


@dataclass(frozen=True)
class Plan:
    """A table or figure. `rows`, `columns` and `pages` name the labels that its table is laid out by.

    `draw` makes the figure of what the store holds; `notes` are sentences that belong under the table. A plan whose
    numbers are not the entries' accuracies brings its own `table` (Markdown) and `csv_rows`.
    """

    name: str
    title: str
    entries: tuple[Entry, ...]
    draw: "Callable[[Plan, Store], Figure]"
    rows: str = "method"
    columns: str = "setting"
    pages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    table: "Callable[[Plan, Store], str] | None" = None
    csv_rows: "Callable[[Plan, Store], list[dict[str, Any]]] | None" = None
    trains: bool = True

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """All its runs, each once; none if it only looks at settings (`trains` is False)."""
        return () if not self.trains else unique(cell for entry in self.entries for cell in entry.cells)


def unique(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """The cells in their order, those that are the same run only once; one that is measured on the way stands for the
    same run without, as a probe changes nothing in it."""
    once = {cell.key: cell for cell in cells}
    probed = {key_of(cell.described()): cell for cell in once.values() if cell.probe}
    return tuple({cell.key: cell for cell in (probed.get(key, cell) for key, cell in once.items())}.values())


@dataclass(frozen=True)
class Cut:
    """What is left out of a plan: empty means nothing is."""

    seeds: tuple[int, ...] = ()
    rounds: int | None = None
    steps: int | None = None
    methods: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def shortens(self) -> bool:
        """Whether runs are shorter than the paper's, so that they cannot be compared with it."""
        return self.rounds is not None or self.steps is not None


def cut_down(plan: Plan, cut: Cut) -> Plan:
    """The plan with only what `cut` leaves: chosen methods and settings, other seeds, shorter runs.

    `cut.settings` are NAME=VALUE, with a label of the plan or a setting (iid=0.1, participation=0.2); those with the
    same name are alternatives. An entry without that label or setting stays out, and so does one that is read off after
    more rounds than are left.
    """
    asked: dict[str, set[str]] = {}
    for text in cut.settings:
        name, value = _pair(text)
        asked.setdefault(name, set()).add(value)
    kept = []
    for entry in plan.entries:
        if cut.methods and entry.settings.method not in cut.methods:
            continue
        if not all(_values(entry, name) & values for name, values in asked.items()):
            continue
        if cut.rounds is None or entry.rounds_read <= cut.rounds:
            kept.append(_shortened(entry, cut))
    return replace(plan, entries=tuple(kept))


def check_cut(plans: Sequence[Plan], cut: Cut) -> None:
    """ValueError if `cut` asks for a method that is not known, or for a setting that nothing in `plans` has."""
    for name in cut.methods:
        known("--methods", name, METHODS)
    entries = [entry for plan in plans for entry in plan.entries]
    names = sorted({f.name for f in fields(Settings)} | {_named(key) for entry in entries for key, _ in entry.labels})
    for text in cut.settings:
        name, value = _pair(text)
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f" (did you mean {near[0]}=?)" if near else ""
            raise ValueError(f"--settings has {text!r}, but {name} is no setting{hint}")
        there = {each: None for entry in entries for each in sorted(_values(entry, name))}
        if value not in there:
            raise ValueError(
                f"--settings has {text!r}, but none of these runs has it: {name} is {_listed(list(there))}"
            )


def _listed(values: list[str], most: int = 12) -> str:
    return ", ".join(map(repr, values[:most])) + ", ..." * (len(values) > most)


def _pair(text: str) -> tuple[str, str]:
    """Name and value of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--settings has {text!r}, but each must be NAME=VALUE, such as iid=0.1")
    return _named(name.strip()), value.strip()


def _named(label: str) -> str:
    return label.replace("-", "_")


def _values(entry: Entry, name: str) -> set[str]:
    """What an entry has under this name: its label, its setting, or both."""
    has = {value for key, value in entry.labels if _named(key) == name}
    if hasattr(entry.settings, name):
        value = getattr(entry.settings, name)
        has.add(f"{value:g}" if isinstance(value, float) else str(value))
    return has


def _shortened(entry: Entry, cut: Cut) -> Entry:
    settings = entry.settings
    if cut.rounds is not None:
        settings = replace(settings, rounds=min(cut.rounds, settings.rounds))
    if cut.steps is not None:
        settings = replace(settings, steps=min(cut.steps, settings.steps))
    same = settings == entry.settings
    return replace(entry, settings=settings, seeds=cut.seeds or entry.seeds, paper=entry.paper if same else None)


def values_of(entries: Sequence[Entry], label: str) -> tuple[str, ...]:
    """The values that a label takes among `entries`, in the order of their first appearance."""
    return tuple(dict.fromkeys(entry.label(label) for entry in entries))


def by_labels(entries: Sequence[Entry], names: Sequence[str]) -> dict[str, list[Entry]]:
    """The entries sorted into pages by the values of these labels, such as 'CIFAR-10, Strategy 1'."""
    pages: dict[str, list[Entry]] = {}
    for entry in entries:
        pages.setdefault(", ".join(entry.label(name) for name in names), []).append(entry)
    return pages
