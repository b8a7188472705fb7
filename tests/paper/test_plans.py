"""Plans have the paper's numbers and settings, and can be cut down."""

from collections import Counter

import pytest
import torch

from ccfed.paper import published
from ccfed.paper.catalogue import LARGE_MODEL, PLANS, chosen, without_large_models
from ccfed.paper.plan import Cell, Cut, Plan, check_cut, cut_down, unique
from ccfed.paper.sharing import ENOUGH, client_steps_of, side_by_side
from ccfed.simulation.settings import Settings

TABLES = {"silo-cifar": 60, "device-fmnist1": 36, "device-fmnist2": 16, "device-fmnist3": 16, "compare-combination": 18}


def settings_of(plan: Plan, **labels: str) -> Settings:
    (entry,) = [e for e in plan.entries if all(e.label(name) == value for name, value in labels.items())]
    return entry.settings


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_every_number_of_the_paper_once(name: str) -> None:
    plan = PLANS[name]()
    rows = published.tables(name)
    assert len(plan.entries) == len(rows) == TABLES[name]
    ours = Counter((e.label("method"), e.paper.accuracy, e.paper.deviation) for e in plan.entries if e.paper)
    theirs = Counter((row["method"], float(row["accuracy"]), float(row["std"]) if row["std"] else None) for row in rows)
    assert ours == theirs
    assert all(e.measure == ("best" if "best" in e.label("method") else "last") for e in plan.entries)
    placed = {tuple(v for _, v in e.labels) for e in plan.entries}
    assert len(placed) == len(plan.entries)


def test_the_silo_table_runs_with_the_papers_settings() -> None:
    s = settings_of(PLANS["silo-cifar"](), schedule="round-robin", iid="0.2", method="CC-FedAvg")
    assert (s.data, s.model, s.clients, s.participation) == ("cifar10", "cnn", 8, 1.0)
    assert (s.rounds, s.steps, s.batch_size, s.lr) == (400, 300, 64, 0.01)
    assert (s.split, s.iid, s.schedule, s.method, s.weights) == ("mixed", 0.2, "round-robin", "cc-fedavg", "equal")
    # The budgets run against the data order: the scarce clients are the only holders of their classes.
    assert s.make_method().budget(torch.arange(8)).tolist() == [1 / 8] * 2 + [1 / 4] * 2 + [1 / 2] * 2 + [1.0] * 2


def test_the_device_tables_run_with_the_papers_settings() -> None:
    splits = {1: ("shards", 2), 2: ("highly-skewed", 2), 3: ("moderately-skewed", 2)}
    for number, (split, shards) in splits.items():
        plan = PLANS[f"device-fmnist{number}"]()
        s = settings_of(plan, participation="0.3", method="Strategy 2")
        assert (s.data, s.model, s.clients, s.participation) == ("fmnist", "mlp", 100, 0.3)
        assert (s.rounds, s.steps, s.batch_size, s.lr) == (400, 200, 32, 0.01)
        assert (s.split, s.shards_per_client, s.schedule) == (split, shards, "ad-hoc")
        assert s.p == (1 / 8,) * 25 + (1 / 4,) * 25 + (1 / 2,) * 25 + (1.0,) * 25
        assert {e.seeds for e in plan.entries} == {(0, 1, 2, 3, 4)}


def test_the_combination_changes_over_at_round_100() -> None:
    plan = PLANS["compare-combination"]()
    s = settings_of(plan, setting="iid 0.5", method="CC-FedAvg(c)")
    assert (s.method, s.tau) == ("cc-fedavg-c", 100)
    assert {len(e.seeds) for e in plan.entries if e.settings.data == "cifar10"} == {3}


def test_the_grid_has_every_run_and_only_the_scarce_clients_skip() -> None:
    plan = PLANS["r-W"]()
    assert len(plan.entries) == 96
    s = settings_of(plan, data="CIFAR-10", method="Strategy 1", r="0.75", W="8")
    assert (s.iid, s.steps, s.batch_size) == (0.1, 300, 64)
    assert s.make_budgets().tolist() == [1 / 8] * 6 + [1.0] * 2
    s = settings_of(plan, data="Fashion-MNIST", method="CC-FedAvg", r="0.25", W="16")
    assert (s.clients, s.participation, s.split) == (100, 0.2, "shards")
    assert sum(s.make_budgets().tolist()) == pytest.approx(25 / 16 + 75)


def test_efficiency_reads_fewer_rounds_off_one_run_of_fedavg() -> None:
    plan = PLANS["efficiency"]()
    fewer = [e for e in plan.entries if e.label("method").startswith("FedAvg") and e.label("data") == "CIFAR-10"]
    assert [e.measure for e in fewer] == ["last", "@1/2", "@1/4", "@1/8", "@1/16"]
    assert len({cell.key for e in fewer for cell in e.cells}) == 1
    opt = [e for e in plan.entries if e.settings.method == "fedopt"]
    assert all(e.settings.make_method().schedule.name == "synchronised" for e in opt)
    assert len(opt) == 8


def test_figures_share_the_runs_of_the_tables() -> None:
    silo = {cell.key for cell in PLANS["silo-cifar"]().cells}
    assert len(silo) == 40  # FedAvg and dropout know no schedule, and dropout's best and last are one run
    full = settings_of(PLANS["efficiency"](), data="CIFAR-10", method="FedAvg, T/W rounds", W="1")
    assert Cell(full).key in silo
    device = {cell.key for cell in PLANS["device-fmnist1"]().cells}
    assert {e.cells[0].key for e in PLANS["cost"]().entries if e.label("method") == "CC-FedAvg, Algorithm 1"} <= device


def test_what_is_measured_on_the_way_is_no_run_of_its_own() -> None:
    silo, watched = PLANS["silo-cifar"]().cells, PLANS["distance"]().cells
    together = unique([*silo, *watched])
    assert len(watched) == 4
    assert len(together) == len(silo) == 40
    assert set(watched) < set(together)
    assert [cell.settings for cell in together] == [cell.settings for cell in silo]  # in the order of the first


def test_client_steps_follow_the_budgets() -> None:
    plan = PLANS["silo-cifar"]()
    steps = {
        e.label("method"): client_steps_of(e.cells[0])
        for e in plan.entries
        if e.label("iid") == "0.0" and e.label("schedule") == "ad-hoc"
    }
    assert steps["FedAvg (full)"] == 8 * 400 * 300
    assert steps["CC-FedAvg"] == pytest.approx(8 * 400 * 300 * (1 / 8 + 1 / 4 + 1 / 2 + 1) / 4)
    everything = unique(cell for make in PLANS.values() for cell in make().cells)
    small = [cell for cell in everything if cell.settings.model != LARGE_MODEL]
    by_model = Counter[str]()
    for cell in small:
        by_model[cell.settings.model] += round(client_steps_of(cell))
    assert by_model["cnn"] > 55e6
    assert by_model["mlp"] > 500e6


def test_a_key_names_what_decides_the_result_and_nothing_else() -> None:
    base = Settings(data="fmnist")
    same = (Settings(data="fmnist", device="cuda"), Settings(data="fmnist", engine="together", data_dir="/x"))
    assert {Cell(s).key for s in same} == {Cell(base).key}
    others = (Settings(data="fmnist", seed=1), Settings(data="fmnist", lr=0.1), Settings(data="digits"))
    assert len({Cell(s).key for s in (base, *others)}) == 4
    assert Cell(base, "distance").key != Cell(base).key


def test_cut_down_by_methods_settings_seeds_and_length() -> None:
    plan = PLANS["silo-cifar"]()
    cut = cut_down(plan, Cut(methods=("cc-fedavg", "strategy-1"), settings=("iid=0.0", "iid=0.5", "schedule=ad-hoc")))
    assert {(e.settings.method, e.label("iid"), e.label("schedule")) for e in cut.entries} == {
        (method, iid, "ad-hoc") for method in ("cc-fedavg", "strategy-1") for iid in ("0.0", "0.5")
    }
    assert all(e.paper for e in cut.entries)
    short = cut_down(plan, Cut(rounds=3, steps=500, seeds=(7,)))
    assert {(e.settings.rounds, e.settings.steps, e.seeds) for e in short.entries} == {(3, 300, (7,))}
    assert not any(e.paper for e in short.entries)  # cannot be compared any more
    assert cut_down(plan, Cut(rounds=400)) == plan


def test_what_is_read_after_more_rounds_than_are_left_stays_out() -> None:
    over_t = [e.label("setting") for e in cut_down(PLANS["nova"](), Cut(rounds=400)).entries if e.rounds_read]
    assert set(over_t) == {"T = 100", "T = 200", "T = 400"}
    parts = [e.measure for e in cut_down(PLANS["efficiency"](), Cut(rounds=16)).entries if e.measure.startswith("@")]
    assert parts == ["@1/2", "@1/4", "@1/8", "@1/16"] * 2


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--settings has 'iid', but each must be NAME=VALUE"):
        cut_down(PLANS["silo-cifar"](), Cut(settings=("iid",)))


@pytest.mark.parametrize(
    ("cut", "told"),
    [
        (Cut(methods=("cc-fedavq",)), r"^--methods is 'cc-fedavq'; did you mean 'cc-fedavg'\?"),
        (Cut(settings=("idd=0.1",)), r"^--settings has 'idd=0.1', but idd is no setting \(did you mean iid=\?\)$"),
        (
            Cut(settings=("iid=0.0", "iid=0.3")),
            r"'iid=0.3', but none of these runs has it: iid is '0', '0.0', '0.1', '0.2', '0.5', '1', '1.0'$",
        ),
    ],
)
def test_what_no_run_has_is_refused(cut: Cut, told: str) -> None:
    plans = [PLANS["silo-cifar"](), PLANS["distance"]()]
    with pytest.raises(ValueError, match=told):
        check_cut(plans, cut)
    check_cut(plans, Cut(methods=("mifa",), settings=("iid=0.0", "iid=1", "schedule=ad-hoc", "batch-size=64")))


def test_a_few_runs_of_a_large_model_share_a_batch_so_that_some_are_finished_early() -> None:
    large = [cell for cell in PLANS["nova"]().cells if cell.settings.model == LARGE_MODEL]
    assert sum(map(side_by_side, large[:4])) > ENOUGH[LARGE_MODEL]  # the smallest K with each method, in one batch
    assert sum(map(side_by_side, large[:3])) < ENOUGH[LARGE_MODEL]
    assert {cell.settings.steps for cell in large[:4]} == {10}


def test_names_come_in_their_order_and_unknown_ones_are_refused() -> None:
    assert [plan.name for plan in chosen(["r-W", "silo-cifar", "r-W"])] == ["silo-cifar", "r-W"]
    assert [plan.name for plan in chosen(["tables"])] == list(TABLES)
    assert len(chosen(["all"])) == len(PLANS) == 13
    with pytest.raises(ValueError, match=r"NAME is 'silo-cifer'; did you mean 'silo-cifar'\? It must be one of silo"):
        chosen(["silo-cifer"])


def test_large_models_are_left_out_unless_they_are_asked_for() -> None:
    assert without_large_models(["all-but-resnet"])
    assert without_large_models(["all-but-resnet", "silo-cifar"])
    assert not without_large_models(["all-but-resnet", "convergence"])
    assert not without_large_models(["nova"])


def test_the_resnet_runs_are_planned() -> None:
    large = [cell for make in PLANS.values() for cell in make().cells if cell.settings.model == LARGE_MODEL]
    assert {cell.settings.data for cell in large} == {"cifar10", "cifar100"}
    rates = {(cell.settings.data, cell.settings.lr) for cell in large}
    assert rates == {("cifar10", 0.01), ("cifar100", 0.1)}
