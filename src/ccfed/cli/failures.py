"""Failures that end a command with one sentence instead of a traceback."""

import re
from collections.abc import Iterator
from contextlib import contextmanager


class Failure(Exception):
    """Ends the command with `code` and this message: 2 for bad input, 1 for a run that failed."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code


@contextmanager
def bad_input() -> Iterator[None]:
    """While settings are read and parts are built, a ValueError is the user's: told in one sentence, exit code 2."""
    try:
        yield
    except ValueError as error:
        raise Failure(str(error)) from error


@contextmanager
def disk_trouble(advice: str = "") -> Iterator[None]:
    """A full disk or a read-only folder is told in one sentence, with `advice` if there is some, exit code 1."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise Failure(f"{error.strerror or error}{where}{advice and '; '}{advice}", 1) from error


@contextmanager
def memory_trouble(advice: str = "") -> Iterator[None]:
    """That there is too little memory, on the host or a GPU, is told in one sentence, with `advice` if there is some,
    exit code 1."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        asked = re.search(r"(?:tried|Unable) to allocate ([\d.]+ \w+)", str(error), re.IGNORECASE)
        if asked is None and not isinstance(error, MemoryError):
            raise
        piece = f", no room for {asked[1]} more" if asked else ""
        less = "smaller --clients, --samples, --steps or --batch-size, or a smaller --model, take less"
        raise Failure(f"there is not enough memory{piece}: {less}{advice and '; '}{advice}", 1) from error
