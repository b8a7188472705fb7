"""Runs that differ in nothing but their seed make one line of the report, with means and bands over its seeds."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ccfed.algorithm.methods import METHODS
from ccfed.report.reading import FolderRun
from ccfed.simulation.settings import Settings

# Settings that say where and how a run was computed, not what: they make no new line.
PLACES = ("seed", "device", "engine", "history_memory", "data_dir")

# Those that stand in no file unless they were given a value.
LEFT_OUT = frozenset(field.name for field in fields(Settings) if field.default is None)

IN_LABELS = 3
"""Where more settings than this differ, labels tell only as many as it takes; longer lists are shortened in them."""


@dataclass(frozen=True, eq=False)
class Line:
    """One row of the tables and one curve of the figures: `runs` that differ only in their seed, under one `label`."""

    label: str
    runs: tuple[FolderRun, ...]

    @property
    def method(self) -> str:
        """The method's name."""
        return self.runs[0].method

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of its first run."""
        return self.runs[0].settings

    @property
    def counted(self) -> tuple[FolderRun, ...]:
        """The runs that means are made of: the finished ones, or where none is, all that have played a round."""
        return tuple(r for r in self.runs if r.finished) or tuple(r for r in self.runs if r.played)

    @property
    def finished(self) -> bool:
        """Whether the means are those of finished runs."""
        return bool(self.counted) and self.counted[0].finished

    @property
    def rounds(self) -> int:
        """The number of rounds that all counted runs have played."""
        return min((run.played for run in self.counted), default=0)

    def mean(self, what: str) -> float | None:
        """The mean over the counted runs of a property of FolderRun, of a column's total, or of an entry of
        summary.json; None if a run does not tell it."""
        values = [_value(run, what) for run in self.counted]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known and len(known) == len(values) else None

    def accuracies(self, which: str = "last") -> list[float]:
        """The accuracy of each counted run after its "last" or in its "best" round, in percent; rounds after which it
        was not measured do not count, nor do runs in which it never was."""
        curves = [run.rounds["accuracy"][np.isfinite(run.rounds["accuracy"])] for run in self.counted]
        return [float(curve[-1] if which == "last" else curve.max()) for curve in curves if len(curve)]


def _value(run: FolderRun, what: str) -> float | None:
    if what in run.rounds:
        return run.total(what)
    value = getattr(run, what) if hasattr(run, what) else run.summary.get(what)
    return float(value) if isinstance(value, int | float) else None


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample of two or more `values`."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


def lines_of(runs: Sequence[FolderRun]) -> list[Line]:
    """The lines of a report, in the order of the methods' table; a seed that comes twice opens another line."""
    groups: dict[tuple[str, int], list[FolderRun]] = {}
    for run in sorted(runs, key=lambda run: run.seed or 0):
        told = {name: value for name, value in run.settings.items() if name not in PLACES}
        key, turn = repr((run.method, sorted(told.items()))), 0
        while any(run.seed == other.seed for other in groups.get((key, turn), [])):
            turn += 1
        groups.setdefault((key, turn), []).append(run)
    order = list(METHODS)
    members = sorted(groups.values(), key=lambda g: order.index(g[0].method) if g[0].method in order else len(order))
    return [Line(label, tuple(group)) for label, group in zip(_labels(members), members, strict=True)]


def _labels(groups: Sequence[Sequence[FolderRun]]) -> list[str]:
    """The method, then as far as needed: the settings that tell its groups apart, the folder, a number."""
    labels = []
    methods = {group[0].method for group in groups}
    telling = {m: _telling([group[0].settings for group in groups if group[0].method == m]) for m in methods}
    for group in groups:
        mine = group[0].settings
        told = [name for name in telling[group[0].method] if name in mine]
        parts = [f"{name.replace('_', ' ')} {shown(mine[name], IN_LABELS)}" for name in told]
        labels.append(", ".join([group[0].method, *parts]))
    twice = {label for label in labels if labels.count(label) > 1}
    labels = [
        f"{label} ({_place(group[0])})" if label in twice else label
        for label, group in zip(labels, groups, strict=True)
    ]
    return [
        f"{label} {labels[: i + 1].count(label)}" if labels.count(label) > 1 else label
        for i, label in enumerate(labels)
    ]


def _telling(settings: Sequence[dict[str, Any]]) -> list[str]:
    """The names of the settings that tell these apart: all that differ, or where they are many, as many as it takes."""
    names = [name for name in dict.fromkeys(name for each in settings for name in each) if name not in PLACES]

    def kinds(*chosen: str) -> int:
        return len({repr([each.get(name) for name in chosen]) for each in settings})

    differing = [name for name in names if differs(name, settings)]
    if len(differing) <= IN_LABELS:
        return differing
    chosen: list[str] = []
    while kinds(*chosen) < kinds(*differing):
        # What parts most comes first; of equals, what all of them have.
        chosen.append(max(differing, key=lambda name: (kinds(*chosen, name), sum(name in each for each in settings))))
    return [name for name in differing if name in chosen]


def differs(name: str, settings: Sequence[dict[str, Any]]) -> bool:
    """Whether a setting has more than one value. A folder without it tells nothing of it, except where a run that was
    given no value leaves it out."""
    return len({repr(each.get(name)) for each in settings if name in each or name in LEFT_OUT}) > 1


def _place(run: FolderRun) -> str:
    folder = run.folder.resolve()
    return f"{folder.parent.name}/{folder.name}"


def shown(value: Any, most: int = 8) -> str:
    """A setting's value as one reads it, lists of more than `most` values shortened."""
    if isinstance(value, list):
        if len(value) > most:
            first = ", ".join(map(shown, value[: max(most - 2, 2)]))
            return f"{first}, … ({len(value)} values)"
        return ", ".join(map(shown, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
