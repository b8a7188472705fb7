"""Budgets and schedules: the p_i that are asked for, and as much training as they allow."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccfed.algorithm import Moment, Schedule, budgets, schedules

shares = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8)


def trainings(schedule: Schedule, p: torch.Tensor, rounds: int, seed: int = 0) -> torch.Tensor:
    """Who trains when, all being selected: bool [rounds, clients]."""
    clients = torch.arange(len(p))
    return torch.stack([schedule.decide(Moment(t, rounds, clients, p, seed)) for t in range(rounds)])


def test_levels_are_the_papers() -> None:
    assert budgets.levels(8, 4).tolist() == [1, 1, 1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 8, 1 / 8]
    assert budgets.levels(5, 0).tolist() == [1.0] * 5
    by_hand = [0.5 ** math.floor(2.5 * i / 7) for i in range(7)]
    assert budgets.levels(7, 2.5).tolist() == by_hand


def test_groups_are_the_papers() -> None:
    assert budgets.groups(8, 0.25, 16).tolist() == [1 / 16] * 2 + [1.0] * 6
    assert budgets.groups(4, 0, 8).tolist() == [1.0] * 4
    assert budgets.groups(4, 1, 8).tolist() == [1 / 8] * 4


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: budgets.levels(8, -1), "--beta is -1"),
        (lambda: budgets.levels(8, math.nan), "--beta is nan"),
        (lambda: budgets.levels(8, 5000), "--beta is 5000, which is so large that the last p_i would be 0"),
        (lambda: budgets.groups(8, 1.5, 2), "--r is 1.5"),
        (lambda: budgets.groups(8, 0.5, 0.5), "--W is 0.5"),
        (lambda: budgets.explicit([0.5, 0.0]), r"--p is 0.0 for client 1, but every p must lie in \(0, 1\]"),
        (lambda: budgets.explicit([1.5]), "--p is 1.5 for client 0"),
        (lambda: budgets.explicit([math.nan]), "--p is nan for client 0"),
        (lambda: budgets.explicit([1.0, 0.5], clients=3), "--p has 2 values, but there are 3 clients"),
        (lambda: budgets.energy_plan(10), "needs either trainings, or joules"),
        (lambda: budgets.energy_plan(10, [1], [1]), "needs either trainings, or joules"),
        (lambda: budgets.energy_plan(10, joules=[1]), "needs joules_per_training"),
        (lambda: budgets.energy_plan(10, joules=[5], joules_per_training=0), "--joules-per-training is 0.0"),
        (lambda: budgets.energy_plan(0, [3]), "--rounds is 0"),
        (lambda: budgets.energy_plan(9, joules=[5, 6, 7], joules_per_training=[1, 2]), "has 2 values and --joules 3"),
        (lambda: budgets.energy_plan(10, [3, 0.5]), "--trainings: client 1 can afford 0.5 trainings"),
        (lambda: budgets.energy_plan(10, [3, math.nan]), "client 1 can afford nan trainings"),
    ],
)
def test_budgets_that_cannot_be_are_refused(make: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()  # type: ignore[operator]


@given(affordable=st.lists(st.integers(1, 300), min_size=1, max_size=6), rounds=st.integers(1, 200))
def test_an_energy_plan_lasts_to_the_end_and_no_longer(affordable: list[int], rounds: int) -> None:
    """Under round-robin each device makes just the trainings that it can afford, spread over all rounds."""
    p = budgets.energy_plan(rounds, trainings=affordable)
    made = trainings(schedules.round_robin(), p, rounds)
    assert made.sum(0).tolist() == [min(n, rounds) for n in affordable]
    for column, n in zip(made.T, affordable, strict=True):
        gaps = column.nonzero().flatten().diff()
        assert len(gaps) == 0 or int(gaps.max()) <= math.ceil(rounds / min(n, rounds))


def test_joules_buy_whole_trainings() -> None:
    p = budgets.energy_plan(100, joules=[1000, 350, 99], joules_per_training=[5, 7, 9.9])
    assert p.tolist() == [1.0, 0.5, 0.1]


@given(p=shares, rounds=st.integers(1, 120))
def test_round_robin_trains_its_share_exactly(p: list[float], rounds: int) -> None:
    share = torch.tensor(p, dtype=torch.float64)
    made = trainings(schedules.round_robin(), share, rounds)
    assert made[0].all()
    assert made.sum(0).tolist() == [math.ceil(rounds * each - 1e-9) for each in p]


@given(period=st.integers(1, 20), rounds=st.integers(1, 100))
def test_round_robin_keeps_the_papers_rounds(period: int, rounds: int) -> None:
    made = trainings(schedules.round_robin(), torch.tensor([1 / period], dtype=torch.float64), rounds)
    assert made[:, 0].tolist() == [t % period == 0 for t in range(rounds)]


@given(p=shares, rounds=st.integers(1, 120))
def test_quota_trains_its_share_at_the_beginning(p: list[float], rounds: int) -> None:
    made = trainings(schedules.quota(), torch.tensor(p, dtype=torch.float64), rounds)
    for column, each in zip(made.T.tolist(), p, strict=True):
        n = math.ceil(rounds * each - 1e-9)
        assert column == [True] * n + [False] * (rounds - n)


@pytest.mark.parametrize("seed", range(3))
def test_ad_hoc_trains_its_share_within_binomial_bounds(seed: int) -> None:
    rounds, p = 4000, torch.tensor([1.0, 0.5, 0.25, 0.125, 0.01], dtype=torch.float64)
    made = trainings(schedules.ad_hoc(), p, rounds, seed)
    assert made[0].all()
    after = made[1:]
    assert after[:, 0].all()
    bound = 5 * torch.sqrt(p * (1 - p) * len(after))
    assert ((after.sum(0) - p * len(after)).abs() <= bound).all()
    # Neither rounds nor clients are tied to each other.
    half, quarter = after[:, 1].double(), after[:, 2].double()
    for a, b in ((half[1:], half[:-1]), (half, quarter)):
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 5 / math.sqrt(len(after))


@given(p=shares, seed=st.integers(0, 10**6), rounds=st.integers(2, 30))
def test_an_ad_hoc_draw_does_not_depend_on_who_else_is_selected(p: list[float], seed: int, rounds: int) -> None:
    share, schedule = torch.tensor(p, dtype=torch.float64), schedules.ad_hoc()
    together = trainings(schedule, share, rounds, seed)
    for client in range(len(p)):
        alone = [
            bool(schedule.decide(Moment(t, rounds, torch.tensor([client]), share[[client]], seed)))
            for t in range(rounds)
        ]
        assert together[:, client].tolist() == alone


def test_the_synchronised_train_together_at_the_pace_of_the_scarcest() -> None:
    p = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    made = trainings(schedules.synchronised(), p, 12)
    assert made.tolist() == [[t % 4 == 0] * 3 for t in range(12)]
    two = schedules.synchronised().decide(Moment(2, 12, torch.tensor([0, 1]), p[:2]))
    assert two.tolist() == [True, True]  # without the scarcest, the next one sets the pace


def test_live_asks_every_client_in_every_round() -> None:
    asked = []

    def decide(client: int, round: int) -> bool:
        asked.append((client, round))
        return client != round

    schedule = schedules.live(decide)
    made = trainings(schedule, torch.ones(3, dtype=torch.float64), 2)
    assert made.tolist() == [[False, True, True], [True, False, True]]
    assert asked == [(c, t) for t in range(2) for c in range(3)]
    assert not schedule.foreseeable


def test_the_devices_own_reader_answers() -> None:
    assert isinstance(schedules.device_can_train()(0, 0), bool)
    assert schedules.device_can_train(battery_above=0.0, cpu_below=1.0)(0, 0) in (True, False)
    with pytest.raises(ValueError, match=r"battery_above is 30, but it must lie in \[0, 1\]"):
        schedules.device_can_train(battery_above=30)


@pytest.mark.parametrize("schedule", [schedules.round_robin(), schedules.quota(), schedules.synchronised()])
def test_however_small_a_budget_is_it_is_enough_for_round_0(schedule: Schedule) -> None:
    trains = trainings(schedule, torch.full((3,), 1e-12, dtype=torch.float64), rounds=400)
    assert trains[0].all()
    assert not trains[1:].any()


def test_clients_that_ask_at_one_moment_are_told_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processor loads over no time at all are noise, which psutil gives as 0 or 100 percent."""
    import psutil

    loads = iter([95.0, 5.0] * 4)
    monkeypatch.setattr(schedules, "LOAD_SECONDS", 3600.0)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: next(loads))
    read = schedules.device_can_train()
    assert [read(client, 0) for client in range(8)] == [False] * 8


@pytest.mark.parametrize(("percent", "plugged", "trains"), [(20, False, False), (20, True, True), (80, False, True)])
def test_a_low_battery_means_no_training(
    monkeypatch: pytest.MonkeyPatch, percent: float, plugged: bool, trains: bool
) -> None:
    """The battery is the one thing that a test cannot bring along."""
    import psutil

    battery = type("battery", (), {"percent": percent, "power_plugged": plugged})
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 10.0)
    assert schedules.device_can_train(battery_above=0.3)(0, 0) is trains
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 95.0)
    assert schedules.device_can_train(battery_above=0.3)(0, 0) is False
