"""What simulations came to: columns, tables and curves, from runs that are really made."""

from pathlib import Path

import numpy as np
import pytest
import torch

import ccfed
from ccfed import Runs, budgets, methods
from ccfed.data import Federation
from ccfed.records import RoundRecord
from ccfed.simulation import Running, Simulation
from ccfed.simulation.results import in_bytes


@pytest.fixture(scope="module")
def runs(digits_of_8: Federation) -> Runs:
    p = budgets.levels(8, 4)
    return ccfed.simulate(digits_of_8, [methods.fedavg(), methods.cc_fedavg(p)], rounds=6, steps=4, seeds=range(3))


def test_runs_by_name(runs: Runs) -> None:
    assert runs.names == ("fedavg", "cc-fedavg")
    assert len(runs) == 2
    assert [seeds.name for seeds in runs] == ["fedavg", "cc-fedavg"]
    assert runs["cc-fedavg"].accuracy.shape == (3, 6)
    assert [run.seed for run in runs["cc-fedavg"].runs] == [0, 1, 2]
    with pytest.raises(KeyError, match="there are fedavg, cc-fedavg"):
        runs["fedprox"]


def test_columns_are_the_records(runs: Runs) -> None:
    for seeds in runs:
        for run, row in zip(seeds.runs, seeds.accuracy, strict=True):
            assert row.tolist() == [record.accuracy for record in run.records]
            assert run.accuracy_last == row[-1]
            assert run.accuracy_best == row.max()
    full = runs["fedavg"].runs[0]
    assert full.total("client_steps") == full.client_steps_full == 8 * 6 * 4
    assert full.compute_saved == 0


def test_accounts_add_up(runs: Runs) -> None:
    for run in runs.all:
        for record in run.records:
            assert record.selected == record.trained + record.estimated + record.silent == 8
            assert record.client_steps == 4 * record.trained
    scarce = runs["cc-fedavg"].runs[0]
    model_bytes = 4 * len(scarce.model)
    assert scarce.storage_client_bytes == 8 * model_bytes
    assert scarce.total("bytes_up") == 6 * 8 * model_bytes  # Algorithm 1: whoever skips sends its old move


def test_the_table_has_a_row_a_method(runs: Runs) -> None:
    table = runs.table()
    assert [row["method"] for row in table.rows] == ["fedavg", "cc-fedavg"]
    last = [run.accuracy_last for run in runs["cc-fedavg"].runs]
    assert table.rows[1]["accuracy last %"] == f"{np.mean(last):.2f} ± {np.std(last, ddof=1):.2f}"
    assert table.rows[0]["compute saved"] == "0%"
    lines = str(table).splitlines()
    assert len(lines) == 4
    assert table.markdown().count("\n") == 3
    assert table.markdown().splitlines()[1].startswith("| --- | ---:")


def test_curves_are_drawn(runs: Runs, tmp_path: Path) -> None:
    figure = runs.plot("accuracy", str(tmp_path / "curves.png"))
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.get_lines()] == ["fedavg", "cc-fedavg"]
    assert np.allclose(axes.get_lines()[1].get_ydata(), runs["cc-fedavg"].accuracy.mean(0))
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_two_methods_of_one_name_are_refused(digits_of_8: Federation) -> None:
    with pytest.raises(ValueError, match=r"two methods are called 'fedavg': rename one with method.but"):
        ccfed.simulate(digits_of_8, [methods.fedavg(), methods.fedavg()], rounds=1)


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"rounds": 0}, "rounds is 0"), ({"steps": 0}, "steps is 0"), ({"batch_size": -1}, "batch_size is -1"),
     ({"lr": float("nan")}, "lr is nan"), ({"participation": 0.0}, "participation is 0.0"),
     ({"model": "mpl"}, "'mpl'"), ({"rounds": 2.5}, "rounds is 2.5, but it must be a whole number"),
     ({"steps": "3"}, "steps is 3, but it must be a whole number"), ({"seeds": []}, r"seeds \[\] are given"),
     ({"seeds": [1, 1]}, "must list at least one, none twice")],
)  # fmt: skip
def test_bad_settings_are_refused(digits_of_8: Federation, settings: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ccfed.simulate(digits_of_8, methods.fedavg(), **{"rounds": 1, **settings})


def test_methods_that_are_none_are_refused(digits_of_8: Federation) -> None:
    with pytest.raises(ValueError, match=r"methods has 'fedavg', but each must be a Method, such as methods.fedavg"):
        ccfed.simulate(digits_of_8, ["fedavg"], rounds=1)  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"methods \[\] and seeds \[0\] are given"):
        ccfed.simulate(digits_of_8, [], rounds=1)


def test_seeds_and_numbers_may_come_as_numpy_and_iterators_give_them(digits_of_8: Federation) -> None:
    both = [methods.fedavg(), methods.cc_fedavg([0.5] * 8)]
    plain = ccfed.simulate(digits_of_8, both, rounds=2, steps=2, seeds=[0, 3], device="cpu")
    cpu, seeds = torch.device("cpu"), iter(np.array([0, 3]))
    found = ccfed.simulate(digits_of_8, iter(both), rounds=np.int64(2), steps=np.int32(2), seeds=seeds, device=cpu)
    assert [(run.name, run.seed) for run in found.all] == [(run.name, run.seed) for run in plain.all]
    assert all(np.array_equal(a.model, b.model) for a, b in zip(found.all, plain.all, strict=True))


def test_budgets_must_fit_the_federation(digits_of_8: Federation) -> None:
    with pytest.raises(ValueError, match="'cc-fedavg' has 4 budgets p, but the federation has 8 clients"):
        ccfed.simulate(digits_of_8, methods.cc_fedavg([1.0] * 4), rounds=1)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (120_320, "120.3 kB"), (12e6, "12.0 MB"), (5e15, "5000.0 TB")],
)
def test_bytes_as_one_reads_them(count: float, text: str) -> None:
    assert in_bytes(count) == text


def test_compute_saved_is_that_of_the_rounds_that_were_played(digits_of_8: Federation) -> None:
    class StopAtOnce:
        def on_start(self, simulation: Simulation) -> None:
            pass

        def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
            simulation.stop_requested = True

        def on_end(self, simulation: Simulation) -> None:
            pass

    runs = ccfed.simulate(digits_of_8, methods.fedavg(), rounds=10, steps=1, observers=[StopAtOnce()])
    (run,) = runs.all
    assert len(run.records) == 1
    assert run.compute_saved == 0
