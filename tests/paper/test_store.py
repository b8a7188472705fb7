"""The store keeps what is finished, whatever happens."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ccfed.paper.plan import Cell, Entry, key_of
from ccfed.paper.store import Store

from .conftest import TINY, made_up

ONE, TWO = Cell(TINY), Cell(replace(TINY, seed=1))


def test_what_is_added_is_there_for_the_next_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "new")
    store.add(made_up(ONE, 50.25))
    again = Store(tmp_path / "new")
    assert again.get(ONE) == made_up(ONE, 50.25)
    assert again.missing((ONE, TWO)) == (TWO,)
    assert len(again) == 1


def test_a_run_that_was_measured_on_the_way_is_the_same_run_without(tmp_path: Path) -> None:
    probed = Cell(TINY, "distance")
    Store(tmp_path).add(made_up(probed, 50.25))
    for store in (Store(tmp_path), Store(tmp_path)):
        assert store.get(ONE) == made_up(probed, 50.25)
        assert store.missing((ONE, TWO, probed)) == (TWO,)
    plain = Store(tmp_path / "plain")
    plain.add(made_up(ONE, 50.25))
    assert plain.missing((ONE, probed)) == (probed,)  # which measures more
    assert len({key_of(cell.described(), cell.probe) for cell in (ONE, TWO, probed)}) == 3


@pytest.mark.parametrize("cut", [1, 30])
def test_a_torn_last_line_is_passed_over_and_does_not_hurt_the_next(tmp_path: Path, cut: int) -> None:
    store = Store(tmp_path)
    store.add(made_up(ONE, 1.0))
    store.add(made_up(TWO, 2.0))
    with store.path.open("rb+") as file:
        file.truncate(os.path.getsize(store.path) - cut)
    torn = Store(tmp_path)
    lost = (TWO,) if cut > 1 else ()
    assert torn.missing((ONE, TWO)) == lost
    third = Cell(replace(TINY, seed=2))
    torn.add(made_up(third, 3.0))
    whole = Store(tmp_path)
    assert whole.get(third) is not None
    assert whole.missing((ONE, TWO)) == lost


def test_two_stores_may_add_to_one_folder(tmp_path: Path) -> None:
    first, second = Store(tmp_path), Store(tmp_path)
    first.add(made_up(ONE, 1.0))
    second.add(made_up(TWO, 2.0))
    assert len(Store(tmp_path)) == 2


def test_a_line_is_small_enough_for_many_runs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(made_up(Cell(replace(TINY, rounds=400)), 81.23))
    assert os.path.getsize(store.path) < 10_000


def test_measures() -> None:
    run = replace(made_up(ONE, 0.0), rounds=12, accuracy=tuple(float(i) for i in (50, 90, *range(10))))
    assert run.measure("last") == 9
    assert run.measure("best") == 90
    assert run.measure("mean_last_10") == 4.5
    assert run.measure("@2") == 90
    assert run.measure("@99") == 9
    assert run.measure("@1/2") == 3  # after 6 of 12 rounds
    assert run.measure("@1/99") == 50
    with pytest.raises(ValueError, match="'first' is no measure"):
        run.measure("first")


def test_a_run_that_diverged_ends_at_the_accuracy_of_guessing() -> None:
    run = replace(made_up(ONE, 0.0), rounds=5, accuracy=(40.0, 50.0), diverged="round 2", chance=10.0)
    assert run.curve.tolist() == [40.0, 50.0, 10.0, 10.0, 10.0]
    assert run.measure("last") == 10.0
    assert run.measure("best") == 50.0


def test_mean_and_deviation_over_seeds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    entry = Entry((), TINY, seeds=(0, 1, 2))
    for cell, value in zip(entry.cells, (10.0, 12.0, 17.0), strict=True):
        store.add(made_up(cell, value))
    assert store.mean(entry) == 13.0
    assert store.deviation(entry) == pytest.approx(13**0.5)
    assert store.values(entry) == [10.0, 12.0, 17.0]
