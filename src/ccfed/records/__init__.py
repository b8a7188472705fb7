"""What every run leaves behind, simulated or on real devices: rows of rounds, who took part, a summary, a curve."""

from ccfed.records.participation import participation
from ccfed.records.plots import curves
from ccfed.records.rounds import COLUMNS, RoundRecord, read_rounds, row_text, write_rounds
from ccfed.records.summary import summary

__all__ = [
    "COLUMNS",
    "RoundRecord",
    "curves",
    "participation",
    "read_rounds",
    "row_text",
    "summary",
    "write_rounds",
]
