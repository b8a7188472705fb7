"""Missing runs are made, once, and whatever shares the batch or comes in between, with the same result."""

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ccfed.data import Dataset
from ccfed.paper.campaign import Deadline, SomeFailed, Sources, run_missing
from ccfed.paper.distance import compared
from ccfed.paper.machine import Machine
from ccfed.paper.plan import Cell
from ccfed.paper.sharing import in_batches
from ccfed.paper.speed import known_speed, measured_speed
from ccfed.paper.store import Finished, Store
from ccfed.simulation import RoundRecord, Running, Simulation

from .conftest import TINY

Load = Callable[[str], Dataset]
MACHINE = Machine("cpu", "together")


def silent(sentence: str) -> None:
    """Says nothing."""


class Trouble:
    """Raises what `trouble` gives for a simulation after its second round, if it gives something."""

    def __init__(self, trouble: Callable[[Simulation], Exception | None]) -> None:
        self.trouble = trouble

    def on_start(self, simulation: Simulation) -> None:
        pass

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        found = self.trouble(simulation)
        if played[0][1].round == 1 and found is not None:
            raise found

    def on_end(self, simulation: Simulation) -> None:
        pass


class StopAfter:
    """Lets the deadline come after some rounds."""

    def __init__(self, deadline: Deadline, rounds: int) -> None:
        self.deadline, self.left = deadline, rounds

    def on_start(self, simulation: Simulation) -> None:
        pass

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        self.left -= 1
        self.deadline.asked = self.left <= 1  # the one who looks at it comes before this observer

    def on_end(self, simulation: Simulation) -> None:
        pass


def outcome(run: Finished | None) -> tuple[object, ...]:
    assert run is not None
    return (
        run.accuracy,
        run.client_steps,
        run.bytes_up,
        run.bytes_down,
        run.storage_client_bytes,
        run.extra,
        run.diverged,
    )


def test_runs_that_share_a_batch_equal_runs_alone(cells: list[Cell], load: Load, tmp_path: Path) -> None:
    together, alone = Store(tmp_path / "together"), Store(tmp_path / "alone")
    assert run_missing(cells, together, MACHINE, load=load, say=silent, at_once=10)
    assert run_missing(cells, alone, MACHINE, load=load, say=silent, at_once=1)
    for cell in cells:
        a, b = together.get(cell), alone.get(cell)
        assert a is not None
        assert b is not None
        assert len(a.accuracy) == cell.settings.rounds
        assert outcome(replace(a, extra={})) == outcome(replace(b, extra={}))
    probed = together.get(cells[-1])
    assert probed is not None
    assert probed.extra["round"] == list(range(1, 6))


@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupted_campaign_goes_on_to_the_same_result(
    cells: list[Cell], load: Load, tmp_path: Path, after: int
) -> None:
    straight, stopped = Store(tmp_path / "straight"), Store(tmp_path / "stopped")
    run_missing(cells, straight, MACHINE, load=load, say=silent, at_once=10)
    deadline = Deadline()
    observers = [StopAfter(deadline, after)]
    assert not run_missing(
        cells, stopped, MACHINE, load=load, say=silent, at_once=10, deadline=deadline, observers=observers
    )
    assert len(stopped) == 0
    assert len(list((tmp_path / "stopped" / "paused").iterdir())) == len(cells)
    said: list[str] = []
    assert run_missing(cells, Store(tmp_path / "stopped"), MACHINE, load=load, say=said.append, at_once=10)
    assert any("going on with 6 runs" in sentence for sentence in said)
    again = Store(tmp_path / "stopped")
    for cell in cells:
        assert outcome(again.get(cell)) == outcome(straight.get(cell))
    assert not (tmp_path / "stopped" / "paused").exists()


def test_finished_runs_are_not_made_again(cells: list[Cell], load: Load, tmp_path: Path) -> None:
    store = Store(tmp_path)
    run_missing(cells[:2], store, MACHINE, load=load, say=silent)
    size = store.path.stat().st_size
    said: list[str] = []
    assert run_missing(cells[:2], Store(tmp_path), MACHINE, load=load, say=said.append)
    assert said == []
    assert store.path.stat().st_size == size
    run_missing(cells, Store(tmp_path), MACHINE, load=load, say=said.append, at_once=10)
    assert said[0] == "batch 1 of 1: 4 runs of mlp on tiny"


def test_a_deadline_that_has_come_starts_nothing(cells: list[Cell], load: Load, empty: Store) -> None:
    assert not run_missing(cells, empty, MACHINE, load=load, say=silent, deadline=Deadline(asked=True))
    assert len(empty) == 0


def test_a_run_that_diverges_is_written_down_and_the_others_go_on(load: Load, empty: Store) -> None:
    bad, good = Cell(replace(TINY, lr=1e30)), Cell(TINY)
    late = Cell(replace(TINY, lr=300.0), "distance")  # diverges when it is watched already
    assert run_missing([bad, good, late], empty, MACHINE, load=load, say=silent, at_once=3)
    watched = empty.get(late)
    assert watched is not None
    assert re.match("round [34]: ", watched.diverged or "")  # the global model, or the training from it
    assert watched.extra["round"] == [1, 2, 3]
    diverged, fine = empty.get(bad), empty.get(good)
    assert diverged is not None
    assert fine is not None
    assert "not finite" in (diverged.diverged or "")
    assert diverged.measure("last") == pytest.approx(33.33)
    assert fine.diverged is None


def test_data_that_are_not_there_do_not_keep_the_others_from_being_run(load: Load, empty: Store) -> None:
    here, gone = Cell(TINY), Cell(replace(TINY, data="gone"))

    def load_most(name: str) -> Dataset:
        if name == "gone":
            raise ValueError("the files of gone are nowhere")
        return load(name)

    with pytest.raises(SomeFailed, match=r"^1 run of mlp on gone: the files of gone are nowhere$") as caught:
        run_missing([gone, here], empty, MACHINE, load=load_most, say=silent)
    assert caught.value.bad_input
    assert empty.get(here) is not None
    again = pickle.loads(pickle.dumps(caught.value))  # as a worker's comes back
    assert (str(again), again.bad_input) == (str(caught.value), True)


def test_a_batch_that_fails_on_the_way_does_not_keep_the_others_from_being_run(load: Load, empty: Store) -> None:
    fine, bad, last = (Cell(replace(TINY, batch_size=size)) for size in (8, 4, 2))
    trouble = Trouble(lambda s: RuntimeError("the device is gone") if s.task.batch_size == 4 else None)
    said: list[str] = []
    with pytest.raises(SomeFailed, match=r"^1 run of mlp on tiny: RuntimeError: the device is gone$") as caught:
        run_missing([fine, bad, last], empty, MACHINE, load=load, say=said.append, observers=[trouble])
    assert not caught.value.bad_input
    assert empty.missing((fine, bad, last)) == (bad,)
    assert "batch 2 failed; the others are gone on with" in said
    assert "Traceback (most recent call last):" in said
    assert run_missing([fine, bad, last], empty, MACHINE, load=load, say=silent)


def test_a_batch_that_does_not_fit_is_tried_again_in_halves(cells: list[Cell], load: Load, empty: Store) -> None:
    trouble = Trouble(lambda s: torch.OutOfMemoryError("full") if len(s.running) > 2 else None)
    said: list[str] = []
    assert run_missing(cells, empty, MACHINE, load=load, say=said.append, observers=[trouble], at_once=10)
    batches = [line.partition(": ")[2] for line in said if line.startswith("batch ")]
    assert [line.split()[0] for line in batches] == ["6", "3", "1", "2", "3", "1", "2"]
    alone = Trouble(lambda s: torch.OutOfMemoryError("full"))
    one = Cell(replace(TINY, seed=9))
    with pytest.raises(SomeFailed, match=r"^1 run of mlp on tiny: full$"):
        run_missing([one], empty, MACHINE, load=load, say=silent, observers=[alone])


def test_a_run_that_was_stopped_says_where_both_its_parts_were_made(load: Load, tmp_path: Path) -> None:
    cell, deadline = Cell(TINY), Deadline()
    first, second = replace(MACHINE, engine="one-by-one"), replace(MACHINE, engine="auto", precision="tf32")
    watching = [StopAfter(deadline, 1)]
    assert not run_missing([cell], Store(tmp_path), first, load=load, say=silent, deadline=deadline, observers=watching)
    assert run_missing([cell], Store(tmp_path), second, load=load, say=silent)
    run = Store(tmp_path).get(cell)
    assert run is not None
    assert run.made["precision"] == "float32, then tf32"
    assert run.made["engine"] == "one-by-one"  # auto goes on with what the run was begun with
    assert ", then" not in run.made["machine"]


def test_a_stopped_run_whose_data_have_changed_is_refused_and_nothing_else(load: Load, tmp_path: Path) -> None:
    cell, other, deadline = Cell(TINY), Cell(replace(TINY, batch_size=4)), Deadline()
    watching = [StopAfter(deadline, 1)]
    run_missing([cell], Store(tmp_path), MACHINE, load=load, say=silent, deadline=deadline, observers=watching)
    with pytest.raises(SomeFailed, match=r"holds another run \(its data is not what it was\)") as caught:
        run_missing([cell, other], Store(tmp_path), MACHINE, load=lambda name: load("another"), say=silent)
    assert "--resume" not in str(caught.value)  # which `ccfed reproduce` does not have
    assert Store(tmp_path).missing((cell, other)) == (cell,)


def test_what_a_killed_call_left_beside_a_finished_run_is_removed(load: Load, tmp_path: Path) -> None:
    run_missing([Cell(TINY)], Store(tmp_path), MACHINE, load=load, say=silent)
    left = tmp_path / "paused" / Cell(TINY).key
    left.mkdir(parents=True)
    (left / "state.safetensors").write_bytes(b"")
    assert run_missing([Cell(TINY)], Store(tmp_path), MACHINE, load=load, say=silent)
    assert not (tmp_path / "paused").exists()


def test_a_few_steps_tell_the_speed_where_nothing_has_been_run() -> None:
    said: list[str] = []
    speed = measured_speed(Cell(replace(TINY, data="fmnist")), MACHINE, said.append)
    assert speed is not None
    assert speed > 0
    assert said == ["measuring the speed of mlp on fmnist with a few steps"]
    assert measured_speed(Cell(TINY), MACHINE, said.append) is None  # made-up data


def test_a_result_says_where_it_was_made(load: Load, empty: Store) -> None:
    run_missing([Cell(TINY)], empty, replace(MACHINE, made={"command": "x"}), load=load, say=silent)
    run = empty.get(Cell(TINY))
    assert run is not None
    assert run.made["engine"] == "together"
    assert run.made["command"] == "x"
    assert "CPU" in run.made["machine"]
    assert run.made["date"].endswith("UTC")
    assert known_speed(Cell(replace(TINY, seed=5)), empty, MACHINE) == sum(run.client_steps) / run.seconds
    assert known_speed(Cell(replace(TINY, data="another")), empty, MACHINE) is None


def test_batches_are_of_one_kind_and_in_the_order_of_their_first_runs(load: Load) -> None:
    other = [Cell(replace(TINY, batch_size=4, seed=seed)) for seed in range(2)]
    first = [Cell(replace(TINY, seed=seed)) for seed in range(5)]
    found = in_batches([*first[:3], *other, *first[3:]], Sources(load).network, MACHINE, at_once=4)
    assert found == [tuple(first[:4]), tuple(other), (first[4],)]


@pytest.mark.parametrize(("runs", "sizes"), [(3, [3]), (5, [5]), (7, [4, 3]), (9, [5, 4]), (13, [5, 4, 4])])
def test_the_last_batch_is_about_as_full_as_the_others(runs: int, sizes: list[int], load: Load) -> None:
    of_four = [Cell(replace(TINY, method="fedavg", seed=seed)) for seed in range(runs)]  # a processor has enough of 16
    found = in_batches(of_four, Sources(load).network, MACHINE)
    assert [len(batch) for batch in found] == sizes
    assert [cell for batch in found for cell in batch] == of_four


@pytest.mark.parametrize("which", [-2, -1])
def test_the_probe_leaves_the_run_as_it_is(cells: list[Cell], load: Load, empty: Store, which: int) -> None:
    plain, probed = Cell(cells[which].settings), cells[which]
    run_missing([plain, probed], empty, MACHINE, load=load, say=silent, at_once=2)
    watched, alone = empty.get(probed), empty.get(plain)
    assert watched is not None
    assert alone is not None
    assert watched.accuracy == alone.accuracy
    assert watched.client_steps == alone.client_steps
    assert (watched.bytes_up, watched.storage_client_bytes) == (alone.bytes_up, alone.storage_client_bytes)
    assert set(watched.extra) == {"client", "round", "skips", "last move", "last model"}
    assert watched.extra["client"] in (0, 1)  # one of those that skip
    assert watched.extra["round"] == [1, 2, 3, 4, 5]
    assert all(value > 0 for value in watched.extra["last move"]["euclidean"])


def test_an_estimate_that_is_right_has_distance_0_and_cosine_1() -> None:
    x, move = torch.tensor([1.0, 2.0, 2.0]), torch.tensor([0.0, 3.0, 4.0])
    same = compared(x, move, move)
    assert same == pytest.approx({"euclidean": 0.0, "cosine": 1.0, "cosine of moves": 1.0})
    away = compared(x, -move, move)
    assert away["euclidean"] == pytest.approx(10.0)
    assert away["cosine of moves"] == pytest.approx(-1.0)
    assert away["cosine"] == pytest.approx((1 + 4 - 9 + 4 - 16) / (1 + 1 + 4) ** 0.5 / (1 + 25 + 36) ** 0.5)


def test_without_psutil_the_system_is_asked_for_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psutil", None)
    assert MACHINE.free_bytes() > 2**20
