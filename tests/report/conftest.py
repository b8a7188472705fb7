"""Small real runs for the report: three methods with two seeds each, as `ccfed compare` leaves them."""

import shutil
from pathlib import Path

import pytest

from ccfed.cli import main

OPTIONS = ["--rounds=12", "--steps=2", "--clients=6", "--participation=0.5", "--batch-size=16", "--engine=one-by-one"]
METHODS = ("fedavg", "strategy-1", "cc-fedavg")


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison that no test may change."""
    folder = tmp_path_factory.mktemp("report") / "compared"
    assert main(["compare", "--methods", *METHODS, "--seeds", "0", "1", *OPTIONS, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def compared(made_once: Path, tmp_path: Path) -> Path:
    """A copy of the comparison, to be changed at will."""
    return Path(shutil.copytree(made_once, tmp_path / "compared"))
