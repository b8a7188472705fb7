"""Sentences on stderr and tables on stdout, fitted to the terminal where there is one."""

import os
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from ccfed.simulation.results import Table


def tell(sentence: str) -> None:
    """Prints to stderr; on a terminal, lines end between words."""
    width = columns(sys.stderr)
    if width is not None:
        sentence = textwrap.fill(sentence, max(width, 20), break_long_words=False, break_on_hyphens=False)
    print(sentence, file=sys.stderr, flush=True)


def show(table: "Table") -> None:
    """Prints to stdout; on a terminal, columns for which there is no room go on below."""
    print(table.text(columns(sys.stdout)))


def columns(stream: TextIO) -> int | None:
    """The width of the terminal behind `stream`; None if there is none."""
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except OSError:
        return None
