"""The paper's own numbers, from the two files in `reference/`."""

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

Row = dict[str, str]


@dataclass(frozen=True)
class Published:
    """An accuracy in percent that the paper reports; `deviation` is None where it gives none.

    `mean_last_10` is that of the last ten rounds, where the authors' logs tell it beside the number of the paper.
    """

    accuracy: float
    deviation: float | None = None
    mean_last_10: float | None = None


@cache
def _rows(file: str) -> tuple[Row, ...]:
    text = (resources.files("ccfed.paper") / "reference" / file).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def tables(table: str) -> tuple[Row, ...]:
    """The rows of one of the paper's tables, as they stand in paper_tables.csv."""
    return tuple(row for row in _rows("paper_tables.csv") if row["table"] == table)


def grid() -> tuple[Row, ...]:
    """The runs behind the heat maps over r and W and the figure on efficiency, from r_W_grid.csv."""
    return _rows("r_W_grid.csv")


def of_table(row: Row) -> Published:
    """What a row of a table reports."""
    return Published(float(row["accuracy"]), float(row["std"]) if row["std"] else None)


def of_grid(row: Row, column: str = "last") -> Published:
    """What a row of the grid reports: its `last`, `best` or `mean_last_10`."""
    return Published(float(row[column]), mean_last_10=float(row["mean_last_10"]))


def reasons() -> tuple[Row, ...]:
    """Why some of our numbers are off the paper's: plan, where (labels), within (points) and reason."""
    return _rows("reasons.csv")
