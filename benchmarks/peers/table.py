"""From the rates of all rounds to the table of ratios."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

BASE, OURS = "plain loop, 1 thread", "ccfed, together"


@dataclass(frozen=True)
class Measured:
    """One row: client-steps a second of every timed round, and the accuracy after the last round."""

    title: str
    processes: int
    threads: int
    rates: list[float]
    accuracy: float

    @property
    def median(self) -> float:
        return statistics.median(self.rates)


def tables(workload: str, settings: str, rows: list[Measured]) -> str:
    """The workload's table in Markdown, the fastest first.

    "x plain loop" is the row's median by the plain loop's with one thread; "ccfed is" says how many times the median
    of ccfed's batched engine is the row's.
    """
    medians = {row.title: row.median for row in rows}
    head = ["", "processes x threads", "client-steps/s", "lowest to highest", "x plain loop", "ccfed is", "accuracy"]
    body = [
        [
            row.title,
            f"{row.processes} x {row.threads}",
            f"{row.median:,.0f}",
            f"{min(row.rates):,.0f} to {max(row.rates):,.0f}",
            _ratio(row.median, medians.get(BASE)),
            _ratio(medians.get(OURS), row.median),
            f"{100 * row.accuracy:.1f} %",
        ]
        for row in sorted(rows, key=lambda row: -row.median)
    ]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        "| " + " | ".join(cells) + " |" for cells in (_padded(head, widths), rule, *(_padded(b, widths) for b in body))
    ]
    return "\n".join([f"## {workload}", "", settings, "", *lines])


def _ratio(value: float | None, by: float | None) -> str:
    return f"{value / by:.2f}" if value and by else "-"


def _padded(cells: list[str], widths: list[int]) -> list[str]:
    return [cells[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True))]
