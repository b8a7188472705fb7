"""What is left of a table or figure: NAME.csv, NAME.md, NAME.png and NAME.pdf, from what the store holds."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import Any

from matplotlib import rc_context

from ccfed.paper.plan import NOT_DECISIVE, Entry, Plan, by_labels, values_of
from ccfed.paper.store import Store
from ccfed.simulation.settings import Settings

SINGLE = 2.5
"""A number without deviations counts as reproduced within so many points of the paper's."""

DEVIATIONS = 2.0
"""One with deviations, within so many of theirs and ours combined."""

NOT_RUN = "not run yet"


class Verdict(Enum):
    """How an entry compares with the paper."""

    NOT_RUN = NOT_RUN
    NOTHING_TO_COMPARE = "-"
    REPRODUCED = "reproduced"
    OFF = "off"


def allowed(entry: Entry, store: Store) -> float:
    """By how many points the mean may be off the paper's number."""
    theirs, ours = entry.paper.deviation if entry.paper else None, store.deviation(entry)
    if theirs is None or math.isnan(ours):
        return SINGLE
    return DEVIATIONS * math.hypot(theirs, ours)


def verdict(entry: Entry, store: Store) -> Verdict:
    """Whether the entry's mean agrees with the paper's number; all its seeds must have been run."""
    if len(store.of(entry)) < len(entry.seeds):
        return Verdict.NOT_RUN
    if entry.paper is None:
        return Verdict.NOTHING_TO_COMPARE
    near = abs(store.mean(entry) - entry.paper.accuracy) <= allowed(entry, store) + 1e-9
    return Verdict.REPRODUCED if near else Verdict.OFF


def counts(plan: Plan, store: Store) -> dict[Verdict, int]:
    """How many entries of the plan came to each verdict."""
    found = [verdict(entry, store) for entry in plan.entries]
    return {kind: found.count(kind) for kind in Verdict}


def write(plan: Plan, store: Store, folder: Path, name: str | None = None) -> list[Path]:
    """Writes the four files of a plan, under `name` if it is given; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    base = name or plan.name
    texts = {".csv": csv_text(plan, store), ".md": markdown(plan, store)}
    paths = []
    for suffix, text in texts.items():
        path = folder / f"{base}{suffix}"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    figure = plan.draw(plan, store)
    for suffix, plain in ((".png", {"Software": None}), (".pdf", {"CreationDate": None, "Producer": None})):
        path = folder / f"{base}{suffix}"
        with rc_context({"pdf.fonttype": 42}):  # TrueType: many journals refuse matplotlib's usual Type 3
            figure.savefig(path, metadata=plain)  # without dates, so that the same numbers give the same file
        paths.append(path)
    return paths


def csv_text(plan: Plan, store: Store) -> str:
    """NAME.csv: one row a run, with its settings, our number, the paper's and the difference; empty if not run."""
    rows = plan.csv_rows(plan, store) if plan.csv_rows else _rows(plan, store)
    head = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, head, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _rows(plan: Plan, store: Store) -> list[dict[str, Any]]:
    described = [asdict(cell.settings) for cell in plan.cells]
    defaults = asdict(Settings())
    telling = [n for n in defaults if n not in (*NOT_DECISIVE, "seed") and any(d[n] != defaults[n] for d in described)]
    steadier = any(entry.paper and entry.paper.mean_last_10 is not None for entry in plan.entries)
    rows = []
    for entry in plan.entries:
        for cell in entry.cells:
            run = store.get(cell)
            ours = None if run is None else run.measure(entry.measure)
            paper = entry.paper.accuracy if entry.paper else None
            difference = None if ours is None or paper is None else ours - paper
            calm = (
                {}
                if not steadier
                else {
                    "mean_last_10": _number(None if run is None else run.measure("mean_last_10")),
                    "paper_mean_last_10": _number(entry.paper.mean_last_10 if entry.paper else None),
                }
            )
            rows.append(
                {
                    **dict(entry.labels),
                    "seed": cell.settings.seed,
                    "measure": entry.measure,
                    "ours": _number(ours),
                    "paper": _number(paper),
                    "paper_deviation": _number(entry.paper.deviation if entry.paper else None),
                    "difference": _number(difference),
                    **calm,
                    "rounds_played": "" if run is None else len(run.accuracy),
                    "client_steps": "" if run is None else sum(run.client_steps),
                    **{f"--{name.replace('_', '-')}": _setting(getattr(cell.settings, name)) for name in telling},
                    "key": cell.key if run is None else run.key,
                }
            )
    return rows


def _setting(value: Any) -> Any:
    """A setting as it is, a list such as the budgets as '0.125 x25, 0.25 x25'."""
    if not isinstance(value, tuple):
        return "" if value is None else value
    return ", ".join(f"{number:g} x{len(list(same))}" for number, same in groupby(value))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def markdown(plan: Plan, store: Store) -> str:
    """NAME.md: the table as in the paper, ours beside theirs."""
    parts = [f"# {plan.title}"]
    if plan.table is not None:
        parts.append(plan.table(plan, store))
    else:
        compared = any(entry.paper for entry in plan.entries)
        seeds = sorted({len(entry.seeds) for entry in plan.entries})
        what = "Ours, with the standard deviation over the seeds"
        parts.append(
            f"{what if seeds[-1] > 1 else 'Ours'} (number of seeds: {' or '.join(map(str, seeds))})"
            + ("; the paper's number in brackets; * where they disagree." if compared else ".")
        )
        for page, entries in by_labels(plan.entries, plan.pages).items():
            if page:
                parts.append(f"## {page}")
            parts.append(_table(plan, entries, store))
        if compared:
            found = counts(plan, store)
            total = sum(found.values()) - found[Verdict.NOTHING_TO_COMPARE]
            parts.append(
                f"Reproduced: {found[Verdict.REPRODUCED]} of {total - found[Verdict.NOT_RUN]} numbers that were run"
                f" ({found[Verdict.NOT_RUN]} not run yet). A number agrees within {SINGLE} points where there is one"
                " seed, within two standard deviations (theirs and ours combined) otherwise."
            )
            near = steadier_numbers(plan, store)
            if near:
                parts.append(
                    f"By the mean of the last ten rounds, which swings less than the last round alone, {sum(near)} of"
                    f" {len(near)} agree within {SINGLE} points."
                )
    parts += plan.notes
    made = provenance(plan, store)
    if made:
        parts.append(made)
    return "\n\n".join(parts) + "\n"


def _table(plan: Plan, entries: Sequence[Entry], store: Store) -> str:
    columns = values_of(entries, plan.columns)
    rows = values_of(entries, plan.rows)
    lines = [f"| {plan.rows} \\ {plan.columns} | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for row in rows:
        cells = []
        for column in columns:
            found = [e for e in entries if e.label(plan.rows) == row and e.label(plan.columns) == column]
            cells.append(cell_text(found[0], store) if found else "")
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def steadier_numbers(plan: Plan, store: Store) -> list[bool]:
    """For each number that was run and whose mean of the last ten rounds is known of the paper's run too: whether these
    agree within SINGLE points."""
    return [
        abs(mean_of_last_ten(entry, store) - entry.paper.mean_last_10) <= SINGLE + 1e-9
        for entry in plan.entries
        if entry.paper and entry.paper.mean_last_10 is not None and store.of(entry)
    ]


def mean_of_last_ten(entry: Entry, store: Store) -> float:
    """The mean accuracy of the last ten rounds of the entry's finished runs."""
    return store.mean(replace(entry, measure="mean_last_10"))


def cell_text(entry: Entry, store: Store) -> str:
    """Such as '56.90 ± 0.41 (56.28 ± 0.10) *'."""
    values = store.values(entry)
    if not values:
        ours = NOT_RUN
    else:
        spread = store.deviation(entry)
        ours = f"{store.mean(entry):.2f}" + ("" if math.isnan(spread) else f" ± {spread:.2f}")
        if len(values) < len(entry.seeds):
            ours += f" [{len(values)} of {len(entry.seeds)} seeds]"
    if entry.paper is None:
        return ours
    theirs = f"{entry.paper.accuracy:.2f}"
    if entry.paper.deviation is not None:
        theirs += f" ± {entry.paper.deviation:.2f}"
    return f"{ours} ({theirs})" + (" *" if verdict(entry, store) is Verdict.OFF else "")


def provenance(plan: Plan, store: Store) -> str:
    """On which machine, with which engine, precision, commit and note, and when, the runs of a plan were made."""
    runs = [run for cell in plan.cells if (run := store.get(cell)) is not None]
    if not runs:
        return ""
    parts = []
    for name in ("machine", "engine", "precision", "ccfed", "commit", "note"):
        values = sorted({str(run.made[name]) for run in runs if name in run.made})
        if values:
            parts.append(f"{name} {', '.join(values)}")
    dates = sorted(str(run.made["date"]) for run in runs if "date" in run.made)
    if dates:
        parts.append(f"from {dates[0]} to {dates[-1]}")
    return f"{len(runs)} of {len(plan.cells)} runs: " + "; ".join(parts) + "."
