"""One row a round: what it holds, and the table of all rounds as a CSV file."""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ccfed.files import write_whole


@dataclass(frozen=True)
class RoundRecord:
    """What one round of one federation came to. `accuracy` (percent) and `loss` are the new global model's, on the test
    samples; the rest are sums over the selected clients. `silent` clients neither trained nor were estimated."""

    round: int
    accuracy: float
    loss: float
    selected: int
    trained: int
    estimated: int
    silent: int
    client_steps: int
    bytes_up: int
    bytes_down: int
    seconds: float


COLUMNS = tuple(field.name for field in fields(RoundRecord))


def row_text(record: RoundRecord) -> str:
    """One line of rounds.csv."""
    values = asdict(record)
    values |= {name: f"{values[name]:.6g}" for name in ("accuracy", "loss", "seconds")}
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([values[name] for name in COLUMNS])
    return out.getvalue()


def write_rounds(path: Path, records: Iterable[RoundRecord]) -> None:
    """Writes rounds.csv with these rows, whole or not at all."""
    write_whole(path, (",".join(COLUMNS) + "\n" + "".join(map(row_text, records))).encode())


def read_rounds(path: Path) -> list[RoundRecord]:
    """Reads rounds.csv."""
    kinds: dict[str, Any] = {field.name: field.type for field in fields(RoundRecord)}
    with path.open(newline="") as file:
        return [RoundRecord(**{name: kinds[name](row[name]) for name in COLUMNS}) for row in csv.DictReader(file)]
