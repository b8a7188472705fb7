"""`ccfed report`: one HTML page of one or several runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ccfed.cli.failures import bad_input, disk_trouble
from ccfed.cli.options import read_options


@dataclass(frozen=True)
class ReportOptions:
    """Makes one self-contained HTML page of runs: curves, costs, who took part, who holds what, settings.

    The page opens from its file and fetches nothing. Runs that differ only in their seed become one line with a band.
    Its path is the last line on stdout.
    """

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...")] = ()
    """Folders of runs, or folders with runs inside, as `ccfed compare` leaves them."""
    out: Path = Path("report.html")
    """File to write; in a folder that exists, report.html inside it."""


def main(arguments: Sequence[str]) -> int:
    """Runs `ccfed report ARGUMENTS`."""
    options = read_options(ReportOptions, arguments, "ccfed report")
    from ccfed.report import write_report

    with bad_input(), disk_trouble():
        print(write_report(options.folders, options.out))
    return 0
