"""Each example runs as it stands, cut short, and prints a table with a row for each of its methods."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SHORT = {"own_estimator.py": ["--rounds", "5", "--seeds", "0"], "hot_devices.py": ["--rounds", "8"]}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(example), *SHORT[example.name]])
    runpy.run_path(str(example), run_name="__main__")
    table = capsys.readouterr().out
    assert "fedavg" in table
    assert "cc-fedavg" in table
