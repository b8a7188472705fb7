"""Federations on a real Ray cluster of two workers on this machine, one of which is killed on the way."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ccfed import data
from ccfed.cli import main
from ccfed.files import load
from ccfed.paper.campaign import Machine, run_missing
from ccfed.paper.elsewhere import run_missing_elsewhere
from ccfed.paper.plan import Cell
from ccfed.paper.store import Store
from ccfed.simulation import Settings, spread
from ccfed.simulation.checkpoint import STATE
from ccfed.simulation.spread import Lost, NoCluster, connected

ray = pytest.importorskip("ray")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Ray's own

SIZES = ["--rounds", "6", "--steps", "2", "--batch-size", "8", "--engine", "together", "--device", "cpu"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster with two workers of one processor each."""
    from ray.cluster_utils import Cluster

    store = {"object_store_memory": 100 * 2**20}
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **store})
    for _ in range(2):
        made.add_node(num_cpus=1, **store)
    yield made.address
    made.shutdown()


def run(folder: Path) -> tuple[bytes, list[str]]:
    """The final model's bits, and the rows of rounds without their seconds."""
    rows = (folder / "rounds.csv").read_text().splitlines()
    model = load(folder / "checkpoint" / STATE).tensors["model"]
    return model.numpy().tobytes(), [row.rpartition(",")[0] for row in rows]


def piece(folder: Path, once: bool) -> Callable[[str], str]:
    """Work that notes each time it is begun; the piece called "slow" ends its worker, or does so `once`."""

    def work(name: str) -> str:  # inside a function, so that it is sent whole to workers who cannot import this file
        with (folder / "begun").open("a") as file:
            file.write(f"{name}\n")
        if name == "fails":
            raise KeyError("no such thing")
        killed_before = (folder / "begun").read_text().count("slow") > 1
        if name == "slow" and not (once and killed_before):
            os.kill(os.getpid(), signal.SIGKILL)
        return name.upper()

    return work


def test_a_killed_workers_work_is_done_again_and_nothing_twice(cluster: str, tmp_path: Path) -> None:
    said: list[str] = []
    names = ["a", "b", "slow", "c", "d"]
    with connected(cluster) as there:
        assert there.slots == 2
        done = list(there.spread(piece(tmp_path, once=True), names, said.append))
    assert sorted(done) == [(number, name.upper()) for number, name in enumerate(names)]
    assert said == ["a worker died: piece 2 of 5 is done again"]
    begun = (tmp_path / "begun").read_text().splitlines()
    assert sorted(begun) == sorted([*names, "slow"])


def test_work_that_always_ends_its_worker_is_given_up_and_errors_come_back_as_they_are(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spread, "TRIES", 2)
    with connected(cluster) as there:
        with pytest.raises(Lost, match="failed 2 times"):
            list(there.spread(piece(tmp_path, once=False), ["a", "slow"], print))
        with pytest.raises(KeyError, match="no such thing"):
            list(there.spread(piece(tmp_path, once=False), ["fails"], print))


def test_a_comparison_on_a_cluster_is_the_same_as_here_though_a_worker_is_killed(
    cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    what = ["compare", "--methods", "cc-fedavg", "strategy-2", "fedopt", "--seeds", "0", "1", *SIZES]
    assert main([*what, "--out", str(tmp_path / "here")]) == 0
    table = capfd.readouterr().out.splitlines()[:-1]

    stop = threading.Event()
    killed: list[int] = []

    def kill_one_worker() -> None:
        """As soon as one is seen at work on a federation."""
        import psutil

        while not killed and not stop.is_set():
            for process in psutil.process_iter(["cmdline", "pid"]):
                if (process.info["cmdline"] or [""])[0].startswith("ray::_do"):
                    process.kill()
                    killed.append(process.info["pid"])
                    break
            time.sleep(0.01)

    thread = threading.Thread(target=kill_one_worker)
    thread.start()
    try:
        assert main([*what, "--out", str(tmp_path / "there"), "--ray", cluster]) == 0
    finally:
        stop.set()
        thread.join()
    told = capfd.readouterr()
    assert len(killed) == 1
    assert "a worker died: piece" in told.err
    assert told.out.splitlines()[:-1] == table
    for path in (tmp_path / "here").iterdir():
        if path.is_dir():
            assert run(tmp_path / "there" / path.name) == run(path)
            there = {file.name for file in (tmp_path / "there" / path.name).iterdir()}
            assert there == {file.name for file in path.iterdir()}

    # What has finished is not run again; what is missing is.
    state = tmp_path / "there" / "fedopt-seed-1" / "checkpoint" / STATE
    state.unlink()
    assert main(["compare", "--out", str(tmp_path / "there"), "--resume", "--ray", cluster]) == 0
    again = capfd.readouterr()
    assert "1 of 6 federations on" in again.err
    assert again.out == told.out
    assert run(state.parent.parent) == run(tmp_path / "here" / "fedopt-seed-1")


def test_event_files_come_back_from_a_cluster(cluster: str, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    out = ["--out", str(tmp_path / "run"), "--ray", cluster, "--tensorboard"]
    assert main(["compare", "--methods", "fedavg", *SIZES, *out]) == 0
    assert len(list((tmp_path / "run" / "fedavg-seed-0").glob("events.out.*"))) == 1


def test_the_papers_runs_on_a_cluster_are_the_same_as_here_and_each_is_made_once(cluster: str, tmp_path: Path) -> None:
    tiny = Settings(data="tiny", clients=4, rounds=5, steps=3, batch_size=8)
    cells = [Cell(replace(tiny, method=name, seed=seed)) for name in ("cc-fedavg", "strategy-2") for seed in (0, 1)]
    cells += [Cell(tiny, "distance")]
    made = data.synthetic(120, 6, 3, test_samples=40)
    machine = Machine("cpu", "together")
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    run_missing(cells, here, machine, load=lambda name: made, say=print)
    said: list[str] = []
    for part in (cells[:2], cells, cells):  # the second call makes what the first one left, the third one nothing
        run_missing_elsewhere(part, there, machine, cluster, load=lambda name: made, say=said.append)
    assert [line for line in said if " at the same time" in line] == [
        f"{left} runs on {cluster}, 2 groups at the same time" for left in (2, 3)
    ]
    assert len((tmp_path / "there" / "cells.jsonl").read_text().splitlines()) == len(cells)
    for cell in cells:
        one, other = here.get(cell), there.get(cell)
        assert one is not None
        assert other is not None
        assert (one.accuracy, one.bytes_up, one.extra) == (other.accuracy, other.bytes_up, other.extra)


def test_a_diverged_federation_is_told_in_one_sentence(
    cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *SIZES, "--lr", "1e30", "--out", str(tmp_path / "run"), "--ray", cluster]) == 1
    last: Any = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("ccfed compare: round")
    assert "not finite" in last


def test_no_cluster_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=r"--ray is '127\.0\.0\.1:9'"), connected("127.0.0.1:9"):
        pass
