"""`ccfed reproduce` and `ccfed theory` from end to end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ccfed.data.originals import ORIGINALS
from ccfed.data.sources import locate
from ccfed.paper import theory

Ccfed = Callable[..., object]

needs_fmnist = pytest.mark.skipif(
    locate(ORIGINALS["fmnist"]) is None, reason="the files of fmnist are nowhere on this machine"
)
TINY = ("convergence", "--settings", "data=fmnist", "iid=0.1", "--methods", "fedavg", "cc-fedavg", "--rounds", 2)


def test_the_list_names_everything_with_its_cost(ccfed: Ccfed, tmp_path: Path) -> None:
    said = ccfed("reproduce", "--list", "--out", tmp_path)
    assert said.code == 0
    lines = said.out.splitlines()
    assert [line.split()[0] for line in lines[2:-1]] == [
        "silo-cifar",
        "device-fmnist1",
        "device-fmnist2",
        "device-fmnist3",
        "compare-combination",
        "r-W",
        "efficiency",
        "distance",
        "participation",
        "theory",
        "cost",
        "nova",
        "convergence",
    ]
    assert "20,550,000" in lines[2]
    assert "unknown" not in said.out
    assert "measuring the speed of cnn on cifar10 with a few steps" in said.err
    assert lines[-1].startswith("all of these")
    cut = ccfed("reproduce", "silo-cifar", "--list", "--methods", "fedavg", "--out", tmp_path)
    assert "4,800,000" in cut.out
    assert not list(tmp_path.iterdir())


@needs_fmnist
def test_a_figure_is_run_drawn_and_kept(ccfed: Ccfed, tmp_path: Path) -> None:
    said = ccfed("reproduce", *TINY, "--steps", 2, "--out", tmp_path, "--device", "cpu", "--note=mine")
    assert said.code == 0, said.err
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"cells.jsonl", *(f"convergence-cut.{kind}" for kind in ("csv", "md", "png", "pdf"))}
    assert said.out.splitlines() == [str(tmp_path / f"convergence-cut.{kind}") for kind in ("csv", "md", "png", "pdf")]
    runs = [json.loads(line) for line in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert [run["settings"]["method"] for run in runs] == ["fedavg", "cc-fedavg"]
    assert all(run["rounds"] == 2 for run in runs)
    # The command that repeats it, without the places of this machine.
    words = " ".join(map(str, TINY))
    assert {run["made"]["command"] for run in runs} == {f"ccfed reproduce {words} --steps 2 --device cpu"}
    again = ccfed("reproduce", *TINY, "--steps", 2, "--out", tmp_path, "--device", "cpu")
    assert again.code == 0
    assert "batch" not in again.err  # nothing was run
    listed = ccfed("reproduce", *TINY, "--steps", 2, "--list", "--out", tmp_path, "--device", "cpu")
    assert listed.out.splitlines()[2].split()[:4] == ["convergence", "2", "2", "0"]


@needs_fmnist
def test_it_stops_at_the_limit_and_the_next_call_goes_on(ccfed: Ccfed, tmp_path: Path) -> None:
    words = ("reproduce", *TINY, "--steps", 1, "--out", tmp_path / "cut", "--device", "cpu", "--run-only")
    said = ccfed(*words, "--limit", 1e-9)
    assert said.code == 0
    assert "2 of 2 runs are left: the same call goes on with them" in said.err
    assert ccfed(*words).code == 0
    assert len((tmp_path / "cut" / "cells.jsonl").read_text().splitlines()) == 2
    assert [path.name for path in (tmp_path / "cut").iterdir()] == ["cells.jsonl"]


@needs_fmnist
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_same_call_ends_as_if_nothing_had_been(tmp_path: Path, number: int) -> None:
    words = [sys.executable, "-m", "ccfed", "reproduce"]
    words += ["convergence", "--settings", "data=fmnist", "iid=0.1", "--methods", "cc-fedavg", "--rounds", "40"]
    words += ["--steps", "2", "--device", "cpu", "--engine", "together", "--run-only", "--out"]
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    subprocess.run([*words, str(straight)], check=True, capture_output=True)
    process = subprocess.Popen([*words, str(stopped)], stderr=subprocess.PIPE, text=True, env={**os.environ})
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("round "):
            process.send_signal(number)
            break
    rest = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert "stopping at the end of this round" in rest
    assert not (stopped / "cells.jsonl").exists()
    assert len(list((stopped / "paused").iterdir())) == 1
    done = subprocess.run([*words, str(stopped)], check=True, capture_output=True, text=True)
    assert "going on with 1 runs" in done.stderr
    first, second = (json.loads((folder / "cells.jsonl").read_text()) for folder in (straight, stopped))
    assert first["accuracy"] == second["accuracy"]
    assert first["client_steps"] == second["client_steps"]


def test_drawing_alone_runs_nothing_and_writes_the_page_of_results(
    ccfed: Ccfed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccfed.paper.theory.ROUNDS", (16, 32))
    theory.measured.cache_clear()
    page = tmp_path / "docs" / "results.md"
    said = ccfed("reproduce", "silo-cifar", "--draw-only", "--out", tmp_path / "r", "--report", page)
    assert said.code == 0
    assert said.err == ""
    assert said.out.splitlines()[-1] == str(page)
    assert "not run yet" in page.read_text()
    assert "not run yet" in (tmp_path / "r" / "silo-cifar.md").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "NAME is missing: give one or several of those that --list shows, or all-but-resnet"),
        (
            ("silo-cifer",),
            "NAME is 'silo-cifer'; did you mean 'silo-cifar'? It must be one of silo-cifar, device-fmnist1",
        ),
        (("nova", "--rounds", 0), "--rounds is 0, but it must be at least 1"),
        (("nova", "--at-once", 0), "--at-once is 0, but it must be at least 1"),
        (("nova", "--limit", -1), "--limit is -1, but it must be more than 0 minutes"),
        (("nova", "--device", "tpu"), "--device is 'tpu'; did you mean 'cpu'? It must be one of auto, cpu, cuda"),
        (("nova", "--engine", "slow"), "--engine is 'slow'; it must be one of auto"),
        (("nova", "--methods", "mifa"), "--methods, --settings or --seeds leave nothing to run"),
        (("nova", "--methods", "fedavk"), "--methods is 'fedavk'; did you mean 'fedavg'? It must be one of fedavg"),
        (("nova", "--settings", "iid=0.7"), "--settings has 'iid=0.7', but none of these runs has it: iid is '0.1'"),
        (("nova", "--settings", "iid"), "--settings has 'iid', but each must be NAME=VALUE, such as iid=0.1"),
        (("nova", "--data-dir", "/nowhere"), "--data-dir is '/nowhere', but that is no folder"),
        (("nova", "--run-only", "--draw-only"), "--run-only and --draw-only are both given"),
    ],
)
def test_bad_input_is_told_in_one_sentence(ccfed: Ccfed, tmp_path: Path, words: tuple[object, ...], told: str) -> None:
    said = ccfed("reproduce", *words, "--out", tmp_path / "r")
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith(f"ccfed reproduce: {told}")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "r").exists()


def test_theory_prints_the_largest_rate_and_the_terms(ccfed: Ccfed) -> None:
    words = {"--N": 8, "--K": 5, "--T": 1000, "--r": 0.5, "--W": 4, "--L": 2, "--sigma-l": 1.5, "--sigma-g": 0.5}
    flat = [str(word) for pair in words.items() for word in pair]
    said = ccfed("theory", *flat, "--gap", 3, "--lr", 0.004)
    assert said.code == 0
    values = {line.split()[0]: line.split()[1] for line in said.out.splitlines() if line.startswith("  ")}
    assert values["start"] == "0.6"
    assert values["drift"] == "0.01216"
    assert values["noise"] == "0.036"
    assert "largest permitted learning rate  0.0101" in said.out
    assert "needs at least 3,866 rounds" in said.out
    enough = ccfed("theory", *flat, "--T", 4000)
    assert "needs at least" not in enough.out


def test_theory_refuses_bad_constants(ccfed: Ccfed) -> None:
    said = ccfed("theory", "--lr", 1)
    assert said.code == 2
    assert said.err.startswith("ccfed theory: --lr is 1, but Theorem 1 needs a learning rate above 0 and at most")
    assert ccfed("theory", "--N", 0).err == "ccfed theory: --N is 0, but it must be at least 1\n"
    for words in (("--sigma-l", 1e200), ("--sigma-g", 1e160), ("--L", 1e-310), ("--N", 10**400), ("--K", 10**308)):
        said = ccfed("theory", *words)
        assert (said.code, said.out) == (2, ""), words
        assert said.err.startswith("ccfed theory: these constants are too large or too small to compute with"), words
