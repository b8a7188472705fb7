"""`ccfed run` and `ccfed compare` with --resume, and what they say when a run cannot be saved or gone on with."""

import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ccfed.cli import main
from ccfed.files import load
from ccfed.records import read_rounds, write_rounds
from ccfed.simulation import loop
from ccfed.simulation.checkpoint import STATE

SIZES = ["--rounds", "12", "--steps", "2", "--batch-size", "8", "--clients", "12", "--participation", "0.25"]


def model(folder: Path) -> tuple[int, bytes]:
    """Rounds played and the global model's bits."""
    state = load(folder / "checkpoint" / STATE)
    return state.facts["round"], state.tensors["model"].numpy().tobytes()


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight") / "run"
    assert main(["run", *SIZES, "--out", str(folder)]) == 0
    return folder


def test_a_full_disk_is_told_in_one_sentence_and_leaves_the_last_good_state(
    tmp_path: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run"), "--checkpoint-every", "0"]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # the pasts of six clients, but not of seven
    try:
        assert main(["run", *SIZES, *out]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("ccfed run: File too large")
    assert said.endswith(f"the last good state is in {tmp_path / 'run'}, and --resume goes on from there")
    assert 0 < model(tmp_path / "run")[0] < 12
    assert main(["run", *out, "--resume"]) == 0
    assert model(tmp_path / "run") == model(straight)


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="there is no folder that nobody may write into")
def test_a_folder_that_nobody_may_write_into_is_told_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *SIZES, "--out", "/sys/kernel/ccfed"]) == 1
    assert "(/sys/kernel/ccfed" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into read-only folders")
def test_a_folder_that_became_read_only_is_told_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    assert main(["run", *SIZES, "--out", str(folder)]) == 0
    (folder / "checkpoint").chmod(0o500)
    folder.chmod(0o500)
    try:
        assert main(["run", "--out", str(folder), "--resume"]) == 1
    finally:
        folder.chmod(0o700)
        (folder / "checkpoint").chmod(0o700)
    assert "Permission denied" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("key", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_ctrl_c_saves_and_ends_with_its_own_code(
    tmp_path: Path, straight: Path, capsys: pytest.CaptureFixture[str], key: signal.Signals, code: int
) -> None:
    folder = tmp_path / "run"

    def press_after_some_rounds() -> None:
        while not (folder / "rounds.csv").exists() or len((folder / "rounds.csv").read_bytes().splitlines()) < 4:
            time.sleep(0.001)
        signal.raise_signal(key)

    thread = threading.Thread(target=press_after_some_rounds, daemon=True)
    thread.start()
    # Many rounds, so that the key comes before the end; they are as long as the others'.
    sizes = ["--rounds", "100000", *SIZES[2:]]
    assert main(["run", *sizes, "--out", str(folder)]) == code
    thread.join()
    assert capsys.readouterr().err.splitlines()[-1].startswith("ccfed run: interrupted; the last good state is in")
    rounds, _ = model(folder)
    rows = (folder / "rounds.csv").read_text().splitlines()
    assert 3 <= rounds == len(rows) - 1 < 100_000
    shared = min(rounds, 12) + 1
    same = [row.rpartition(",")[0] for row in (straight / "rounds.csv").read_text().splitlines()]
    assert [row.rpartition(",")[0] for row in rows[:shared]] == same[:shared]


def test_the_second_ctrl_c_ends_at_once_and_says_where_to_go_on(
    tmp_path: Path, straight: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = []

    def pressed_twice_in_the_fourth_round(self: loop.Simulation, playing: list[Any]) -> list[Any]:
        rounds.append(1)
        for _ in range(2 if len(rounds) == 4 else 0):
            signal.raise_signal(signal.SIGINT)
        return honest(self, playing)

    honest = loop.Simulation._round
    with monkeypatch.context() as patched:
        patched.setattr(loop.Simulation, "_round", pressed_twice_in_the_fourth_round)
        assert main(["run", *SIZES, "--out", str(tmp_path / "run"), "--checkpoint-every", "0"]) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert (
        said == f"ccfed run: interrupted; the last good state is in {tmp_path / 'run'}, and --resume goes on from there"
    )
    assert model(tmp_path / "run")[0] == 3
    assert main(["run", "--out", str(tmp_path / "run"), "--resume"]) == 0
    assert model(tmp_path / "run") == model(straight)


def test_a_diverged_run_leaves_its_last_good_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert main(["run", *SIZES, "--lr", "1e30", *out]) == 1
    assert "the last good state is in" in capsys.readouterr().err.splitlines()[-1]
    assert model(tmp_path / "run")[0] < 12
    assert main(["run", *out, "--resume"]) == 1  # it diverges again, in the same round
    assert "the last good state is in" in capsys.readouterr().err.splitlines()[-1]


def test_what_cannot_be_gone_on_with_is_refused(
    tmp_path: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str) -> str:
        assert main(list(arguments)) == 2
        return capsys.readouterr().err.splitlines()[-1]

    out = ["--out", str(straight)]
    assert "which is not empty" in said("run", *SIZES, *out)
    assert "--lr was 0.05 and is 0.1" in said("run", *SIZES, *out, "--resume", "--lr", "0.1")
    assert "--resume needs --out" in said("run", *SIZES, "--resume")
    assert "--checkpoint-every is -1" in said("run", *SIZES, "--out", str(tmp_path / "x"), "--checkpoint-every", "-1")
    assert "--history-memory is '8XB'" in said("run", *SIZES, "--out", str(tmp_path / "x"), "--history-memory", "8XB")


def test_options_that_were_refused_are_not_those_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command, file in (("run", "experiment.toml"), ("compare", "compare.toml")):
        out = ["--out", str(tmp_path / command), "--device", "cpu"]
        assert main([command, *SIZES, *out]) == 0
        before = (tmp_path / command / file).read_text()
        assert main([command, *out, "--resume", "--lr", "0.1"]) == 2
        assert "--lr was 0.05 and is 0.1" in capsys.readouterr().err.splitlines()[-1]
        assert (tmp_path / command / file).read_text() == before
        assert main([command, *out, "--resume"]) == 0
        assert "nothing to do" in capsys.readouterr().err


def test_a_run_that_was_killed_at_once_goes_on_with_its_own_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "run")]

    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(loop.Simulation, "run", killed)
        with pytest.raises(RuntimeError, match="killed"):
            main(["run", *SIZES, *out])
    assert main(["run", *out, "--resume"]) == 0
    assert "no checkpoint to go on from" in capsys.readouterr().err
    assert model(tmp_path / "run")[0] == 12


def test_a_run_of_another_command_is_not_overwritten(
    tmp_path: Path, straight: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(command: str, folder: Path) -> str:
        assert main([command, "--out", str(folder), "--resume"]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    assert said("compare", straight).endswith("holds a run that `ccfed run --resume` goes on with")
    both = tmp_path / "both"
    assert main(["compare", *SIZES, "--methods", "fedavg", "--out", str(both)]) == 0
    assert said("run", both).endswith("holds a run that `ccfed compare --resume` goes on with")
    devices = tmp_path / "devices"
    devices.mkdir()
    (devices / "devices.csv").write_text("round,client\n")
    assert said("run", devices).endswith("holds a run that `ccfed flower resume` goes on with")


def test_a_table_of_rounds_for_which_there_is_no_room_stays_as_it_was(tmp_path: Path, straight: Path) -> None:
    records = read_rounds(straight / "rounds.csv")
    write_rounds(tmp_path / "rounds.csv", records)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_rounds(tmp_path / "rounds.csv", records[:-1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert read_rounds(tmp_path / "rounds.csv") == records


def clock_that_fails_after(rounds: int) -> Callable[[], float]:
    """A clock that fails when so many rounds were timed, which asks it twice each."""
    left = [2 * rounds]

    def clock() -> float:
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("power")
        return float(-left[0])

    return clock


def test_an_engine_may_change_on_the_way_but_not_to_one_that_cannot_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = ["--out", str(tmp_path / "run"), "--device", "cpu"]
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", SimpleNamespace(perf_counter=clock_that_fails_after(3)))
        with pytest.raises(RuntimeError, match="power"):
            main(["run", *SIZES, *out, "--engine", "one-by-one", "--checkpoint-every", "0"])
    assert main(["run", *out, "--resume", "--engine", "streams"]) == 2
    assert "which needs a GPU" in capsys.readouterr().err.splitlines()[-1]
    assert main(["run", *out, "--resume", "--engine", "together"]) == 0
    assert "begun with engine one-by-one, going on with together" in capsys.readouterr().err


def test_a_comparison_goes_on_with_its_own_methods_and_seeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "all")]
    assert main(["compare", *SIZES, "--methods", "fedavg", "cc-fedavg", "--seeds", "3", "4", *out]) == 0
    table = capsys.readouterr().out
    assert main(["compare", *out, "--resume"]) == 0
    again = capsys.readouterr()
    assert again.out == table
    assert "nothing to do: 4 of 4 federations have finished" in again.err
    # One method more joins, and those that have finished are not run again.
    assert main(["compare", *out, "--resume", "--methods", "fedavg", "cc-fedavg", "mifa"]) == 0
    more = capsys.readouterr()
    assert "going on after 0 of 12 rounds; 4 of 6 federations have finished" in more.err
    assert more.out.splitlines()[2:4] == table.splitlines()[2:4]
