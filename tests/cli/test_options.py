"""Help reads well, options come back as what they are, and sentences fit the terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro

from ccfed.cli.compare import CompareOptions
from ccfed.cli.options import read_options
from ccfed.cli.run import Output
from ccfed.simulation.settings import Settings

CCFED = [sys.executable, "-m", "ccfed"]


@dataclass(frozen=True)
class Inner:
    """Some."""

    rate: float | None = None
    """How fast
    (default: as it likes)."""
    many: tuple[int, ...] = ()
    """Several."""
    kind: Literal["this", "that"] = "this"
    """One of two."""


@dataclass(frozen=True)
class Outer:
    """What it does."""

    inner: Inner = field(default_factory=Inner)
    where: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIR...")] = ()
    """Places."""
    again: bool = False
    """Once more."""


def test_options_come_back_as_they_are_declared() -> None:
    words = ["a", "b", "--many", "1", "2", "--again", "--kind", "that"]
    found = read_options(Outer, words, "x", Outer(inner=Inner(rate=2.5)))
    assert found == Outer(Inner(2.5, (1, 2), "that"), (Path("a"), Path("b")), True)
    assert type(found.inner) is Inner
    assert read_options(Outer, [], "x") == Outer()


def test_help_tells_each_default_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        read_options(Outer, ["--help"], "x")
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for words in (
        "DIR... Places.",
        "--rate FLOAT How fast (default: as it likes).",
        "--many INT... Several.",
        "--kind this|that One of two. (default: this)",
        "--again Once more.",
        "What it does.",
    ):
        assert words in told
    for noise in ("None", "(default: )", "False", "--no-again"):
        assert noise not in told


def test_every_option_of_a_comparison_is_explained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        read_options(CompareOptions, ["--help"], "x", CompareOptions(settings=Settings(), output=Output()))
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80
    for name in (*Settings.__dataclass_fields__, *Output.__dataclass_fields__, "methods", "seeds"):
        assert f"--{name.replace('_', '-')}" in told
    assert "None" not in told


def test_words_that_are_no_options_end_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_options(Outer, ["--agian"], "x")
    assert ended.value.code == 2
    assert "--again" in capsys.readouterr().err


def test_sentences_end_their_lines_between_words_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    ended = subprocess.run([*CCFED, "rn"], stderr=theirs, stdout=subprocess.DEVNULL, check=False)
    os.close(theirs)
    told = os.read(ours, 10_000).decode()
    os.close(ours)
    assert ended.returncode == 2
    lines = told.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).startswith(
        "ccfed: 'rn' is no command (did you mean 'run'?); there are run, compare, report,"
    )


def test_a_reader_that_has_seen_enough_is_no_trouble() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run([*CCFED, "theory"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (141, b"")
