"""One HTML page of one or several runs: curves, who took part, who holds what, what it cost and how it was set."""

from ccfed.report.lines import Line, lines_of
from ccfed.report.page import make_page, write_report
from ccfed.report.reading import FolderRun, find_runs, read_run

__all__ = ["FolderRun", "Line", "find_runs", "lines_of", "make_page", "read_run", "write_report"]
