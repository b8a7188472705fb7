"""The real command is killed at dozens of random moments, also while it writes, and comes to what it would have come
to."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ccfed import files
from ccfed.simulation.checkpoint import STATE

KILLING = Path(__file__).with_name("killing.py")


def results(folder: Path) -> dict[str, object]:
    """All that a run leaves behind, without the seconds, which no two runs share."""
    state = files.load(folder / "checkpoint" / STATE)
    with (folder / "rounds.csv").open(newline="") as file:
        rows = [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"]
    return {
        "rounds.csv": rows,
        "summary.json": summary,
        "model": state.tensors["model"].numpy().tobytes(),
        "server": [t.numpy().tobytes() for name, t in sorted(state.tensors.items()) if name.startswith("server.")],
        **{
            name: (folder / name).read_bytes()
            for name in ("participation.npz", "accuracy.png", "federation.npz", "experiment.toml")
        },
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "size", "kills", "inside"),
    [
        (["run", "--method", "cc-fedavg", "--participation", "0.5"], "whole", 50, [""]),
        (
            ["compare", "--methods", "strategy-2", "fedopt", "mifa", "--server-optimizer", "adam", "--keep", "mixed"],
            "tiny",
            25,
            ["strategy-2-seed-0", "fedopt-seed-0", "mifa-seed-0"],
        ),
    ],
)
def test_killed_at_random_moments_and_resumed_it_comes_to_the_same_result(
    tmp_path: Path, command: list[str], size: str, kills: int, inside: list[str]
) -> None:
    sizes = ["--rounds", "120", "--steps", "2", "--batch-size", "8", "--clients", "12"]
    made = subprocess.run(
        [sys.executable, KILLING, tmp_path / "killed", str(kills), "7", size, *command, *sizes],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
    )
    counts = json.loads(made.stdout.splitlines()[-1])
    assert counts["killed"] >= kills
    assert counts["while writing"] >= kills // 6
    for name in inside:
        straight, killed = results(tmp_path / "killed-straight" / name), results(tmp_path / "killed" / name)
        assert straight.keys() == killed.keys()
        for part in straight:
            assert straight[part] == killed[part], part
