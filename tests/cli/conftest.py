"""The real command, run in a process of its own or in this one."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ccfed.cli import main


@dataclass(frozen=True)
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def ccfed(capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs `ccfed ARGUMENTS` in this process, which saves the seconds that PyTorch takes to load."""

    def call(*arguments: object) -> Said:
        capfd.readouterr()
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # how the parser of the command line ends
            code = int(end.code or 0)
        return Said(code, *capfd.readouterr())

    return call


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Said]:
    """Runs `ccfed ARGUMENTS` as a user does."""

    def call(*arguments: object) -> Said:
        words = [str(Path(sys.executable).with_name("ccfed")), *map(str, arguments)]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        return Said(done.returncode, done.stdout, done.stderr)

    return call
