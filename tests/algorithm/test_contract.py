"""What every method promises, method by method, on a problem whose answer NumPy gives as well."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ccfed.algorithm import (
    Method,
    Moment,
    NotFinite,
    Outcome,
    Schedule,
    budgets,
    estimators,
    methods,
    play,
    select,
    server,
    start,
)
from ccfed.algorithm.methods import METHODS
from paper_in_numpy import (
    Adaptive,
    Momentum,
    Quadratic,
    combined,
    federated,
    last_model,
    last_move,
    partial_work,
)

CLIENTS, WIDTH, ROUNDS, STEPS = 9, 6, 32, 5
PROBLEM = Quadratic.drawn(CLIENTS, WIDTH, seed=3)
P = budgets.explicit([1, 1 / 2, 1 / 4, 1 / 8, 1 / 8, 1 / 4, 1 / 2, 1, 0.3])

KEPT_PASTS = ("strategy-2", "cc-fedavg", "cc-fedavg-c", "fedopt", "mifa")


@dataclass
class Played:
    """x_1 .. x_T [T, parameters], what happened in each round, and the bytes that clients and server store at last."""

    models: Tensor
    outcomes: list[Outcome]
    storage: tuple[int, int]


def played(
    method: Method,
    rounds: int = ROUNDS,
    participation: float = 1.0,
    seed: int = 0,
    problem: Quadratic = PROBLEM,
    weights: Tensor | None = None,
) -> Played:
    """Plays all rounds of a method on the quadratic problem, in float64."""
    clients, width = problem.b.shape
    state = start(method, torch.zeros(width, dtype=torch.float64), clients)
    models, outcomes = [], []
    for t in range(rounds):
        selected = select(clients, participation, t, seed)
        playing = play(state, method, selected, steps=STEPS, rounds=rounds, seed=seed, weights=weights)
        work = next(playing)
        x = work.model.numpy()
        moves = [problem.move(x, i, k) for i, k in zip(work.clients.tolist(), work.steps.tolist(), strict=True)]
        with pytest.raises(StopIteration) as stop:
            playing.send(torch.tensor(np.array(moves)).view(len(moves), width))
        outcomes.append(stop.value.value)
        models.append(state.model)
    return Played(torch.stack(models), outcomes, state.history.storage_bytes())


def made(name: str, p: Tensor = P, **choices: object) -> Method:
    """The method called `name`; cc-fedavg-c changes over in the middle of the run."""
    if name == "fedavg":
        return METHODS[name]()
    if name == "cc-fedavg-c":
        choices = {"tau": ROUNDS // 2, **choices}
    return METHODS[name](p, **choices)


def due(method: Method, rounds: int = ROUNDS, seed: int = 0) -> np.ndarray:
    """Whom the schedule lets train, were all selected: bool [rounds, clients]."""
    everyone = torch.arange(CLIENTS)
    moments = [Moment(t, rounds, everyone, method.budget(everyone), seed) for t in range(rounds)]
    return torch.stack([method.schedule.decide(moment) for moment in moments]).numpy()


def transcribed(name: str, method: Method, selected: Sequence[Sequence[int]], p: Tensor = P) -> list[np.ndarray]:
    """x_1 .. x_T of the method of this name, by the transcription in NumPy."""
    x, share = np.zeros(WIDTH), p.numpy()
    if name in ("fednova", "fednova-plain"):
        return partial_work(PROBLEM, x, selected, share, STEPS, normalised=name == "fednova")
    rules = {"fedavg": None, "dropout": None, "strategy-1": None, "strategy-2": last_model, "cc-fedavg": last_move}
    rules |= {"cc-fedavg-c": combined(ROUNDS // 2), "fedopt": last_move, "mifa": last_move}
    return federated(PROBLEM, x, selected, due(method), STEPS, rules[name], everyone=name == "mifa")


def chosen(participation: float, seed: int = 0) -> list[list[int]]:
    return [select(CLIENTS, participation, t, seed).tolist() for t in range(ROUNDS)]


@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_its_transcription(name: str, participation: float) -> None:
    if name == "fedopt" and participation < 1:
        pytest.skip("the slowest of the selected sets the pace: see the test of the synchronised schedule")
    method = made(name)
    ours = played(method, participation=participation).models.numpy()
    theirs = np.array(transcribed(name, method, chosen(participation)))
    assert np.abs(ours - theirs).max() < 1e-9
    assert np.abs(theirs).max() > 0.1  # something was learnt


@pytest.mark.parametrize("name", ["strategy-1", "strategy-2", "cc-fedavg", "cc-fedavg-c", "mifa"])
def test_round_robin_is_its_transcription(name: str) -> None:
    """Here the schedule is transcribed too: client i trains in the rounds t with t mod (1/p_i) = 0."""
    p = budgets.levels(CLIENTS, 4)
    method = made(name, p, schedule="round-robin")
    period = np.round(1 / p.numpy()).astype(int)
    due_by_hand = np.arange(ROUNDS)[:, None] % period == 0
    assert (due(method) == due_by_hand).all()
    theirs = np.array(transcribed(name, method, chosen(1.0), p))
    assert np.abs(played(method).models.numpy() - theirs).max() < 1e-9


SERVERS: dict[str, tuple[Callable[[], server.Server], Callable[[], Callable[..., np.ndarray]]]] = {
    "sgd": (lambda: server.sgd(0.7), lambda: Momentum(0.7, 0.0)),
    "momentum": (lambda: server.sgd(0.5, momentum=0.9), lambda: Momentum(0.5, 0.9)),
    "adam": (server.adam, lambda: Adaptive("adam")),
    "yogi": (server.yogi, lambda: Adaptive("yogi")),
}


@pytest.mark.parametrize("kind", SERVERS)
def test_fedopts_servers_are_their_transcriptions(kind: str) -> None:
    ours, theirs = SERVERS[kind]
    method = methods.fedopt(P, server=ours())
    every_eighth = np.repeat((np.arange(ROUNDS) % 8 == 0)[:, None], CLIENTS, axis=1)
    expected = federated(
        PROBLEM, np.zeros(WIDTH), chosen(1.0), every_eighth, STEPS, last_move, server=theirs()
    )  # fmt: skip
    assert np.abs(played(method).models.numpy() - np.array(expected)).max() < 1e-9


@pytest.mark.parametrize("participation", [1.0, 0.4])
@pytest.mark.parametrize("name", METHODS)
def test_with_all_budgets_at_one_every_method_is_fedavg(name: str, participation: float) -> None:
    """To the bit. (MIFA also counts who was not selected, so there it holds when all are.)"""
    if name == "mifa" and participation < 1:
        pytest.skip("MIFA counts those who were not selected")
    everything = torch.ones(CLIENTS, dtype=torch.float64)
    full = played(methods.fedavg(), participation=participation)
    ours = played(made(name, everything), participation=participation)
    assert torch.equal(ours.models, full.models)
    assert all(bool(outcome.trained.all()) for outcome in ours.outcomes)


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("name", KEPT_PASTS)
def test_algorithms_1_2_and_3_give_the_same_models(name: str, participation: float) -> None:
    """To the bit; what differs is where the past lies and what travels."""
    client, on_server, mixed = (
        played(made(name, keep=keep), participation=participation) for keep in ("client", "server", "mixed")
    )
    assert torch.equal(client.models, on_server.models)
    assert torch.equal(client.models, mixed.models)

    vector = WIDTH * 8 * made(name).estimator.keeps
    owners = len({i for outcome in client.outcomes for i in outcome.selected[outcome.trained].tolist()})
    assert client.storage == (owners * vector, 0)
    assert on_server.storage == (0, owners * vector)
    assert sum(mixed.storage) == owners * vector
    assert min(mixed.storage) > 0

    def sent(run: Played) -> int:
        return sum(int(outcome.traffic.up.sum()) for outcome in run.outcomes)

    skips = sum(int(outcome.estimated.sum()) for outcome in client.outcomes)
    model_bytes, notice = WIDTH * 8, 8
    assert skips > 0
    # With the past on the server a skip is a notice, and the model need not go out; else it costs a model each way.
    assert sent(client) - sent(on_server) == skips * (model_bytes - notice)
    assert sent(on_server) < sent(mixed) < sent(client)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(name: str) -> None:
    draws = name not in ("fedavg", "dropout", "fednova", "fednova-plain", "fedopt")
    first, again, other = (played(made(name), participation=0.5, seed=seed).models for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    if draws:
        everyone = [played(made(name), seed=seed).models for seed in (5, 6)]
        assert not torch.equal(*everyone)


@pytest.mark.parametrize("name", METHODS)
def test_clients_renamed_is_the_same_federation(name: str) -> None:
    """Which number a client has does not matter, where nothing is drawn by it."""
    order = np.array([4, 2, 8, 0, 6, 1, 7, 3, 5])
    schedule = (
        {} if name in ("fedavg", "dropout", "fednova", "fednova-plain", "fedopt") else {"schedule": "round-robin"}
    )
    renamed = Quadratic(PROBLEM.a[order], PROBLEM.b[order])
    ours = played(made(name, **schedule)).models
    theirs = played(made(name, P[torch.from_numpy(order)], **schedule), problem=renamed).models
    assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_equal_weights_are_no_weights_and_weights_count(name: str) -> None:
    even = torch.full((CLIENTS,), 2.0, dtype=torch.float64)
    uneven = torch.arange(1, CLIENTS + 1, dtype=torch.float64)
    plain, weighted, other = (played(made(name), weights=w).models for w in (None, even, uneven))
    assert torch.allclose(plain, weighted, rtol=0, atol=1e-12)
    assert not torch.allclose(plain, other, rtol=0, atol=1e-3)


def test_with_nobody_left_strategy_1_keeps_the_model() -> None:
    run = played(methods.strategy_1(torch.full((CLIENTS,), 1 / 4, dtype=torch.float64), "round-robin"), rounds=4)
    assert not torch.equal(run.models[0], torch.zeros(WIDTH, dtype=torch.float64))
    assert all(torch.equal(run.models[t], run.models[0]) for t in (1, 2, 3))


def test_mifa_in_pieces_is_mifa_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.arange(1, CLIENTS + 1, dtype=torch.float64)
    at_once = played(methods.mifa(P), participation=0.5, weights=weights).models
    monkeypatch.setattr("ccfed.algorithm.round.AT_ONCE_BYTES", 2 * WIDTH * 8)
    in_pieces = played(methods.mifa(P), participation=0.5, weights=weights).models
    assert torch.allclose(at_once, in_pieces, rtol=0, atol=1e-12)


def test_between_is_the_family_of_strategies_2_and_3() -> None:
    for weight, strategy in ((0.0, methods.cc_fedavg(P)), (1.0, methods.strategy_2(P))):
        family = methods.cc_fedavg(P, estimator=estimators.between(weight))
        assert torch.allclose(played(family).models, played(strategy).models, rtol=0, atol=1e-12)


def test_an_estimator_of_ones_own_sees_what_it_needs() -> None:
    seen = []

    def half(view: estimators.View) -> Tensor:
        seen.append((view.round, view.clients.tolist(), view.age.tolist(), len(view.trained_clients)))
        assert torch.equal(view.last_model, view.trained_from + view.last_move)
        return 0.5 * view.last_move

    p = torch.tensor([1.0, 1 / 3], dtype=torch.float64)
    problem = Quadratic.drawn(2, WIDTH, seed=1)
    run = played(methods.cc_fedavg(p, "round-robin", estimator=half), rounds=4, problem=problem)
    assert seen == [(1, [1], [1], 1), (2, [1], [2], 1)]
    x_1, x_2 = run.models[0].numpy(), run.models[1].numpy()
    skipped = 0.5 * problem.move(np.zeros(WIDTH), 1, STEPS)
    assert np.allclose(x_2, x_1 + (problem.move(x_1, 0, STEPS) + skipped) / 2, rtol=0, atol=1e-12)


def test_an_estimators_notes_come_back_to_it() -> None:
    """Each client notes how long its move was; as a skipper it is given that number again."""
    seen: dict[int, list[float]] = {}

    def estimate(view: estimators.View) -> Tensor:
        assert torch.allclose(view.state[:, 0], view.last_move.norm(dim=1))
        for client, number in zip(view.clients.tolist(), view.state[:, 0].tolist(), strict=True):
            seen.setdefault(client, []).append(number)
        return view.last_move

    noting = estimators.Estimator(
        "noting", estimate, note=lambda view: view.trained_moves.norm(dim=1, keepdim=True), state_size=1
    )
    played(methods.cc_fedavg(P, estimator=noting))
    assert seen
    assert all(len(set(numbers)) > 1 for client, numbers in seen.items() if len(numbers) > 12)


def test_an_estimator_of_the_wrong_shape_is_named() -> None:
    def wrong(view: estimators.View) -> Tensor:
        return view.model

    with pytest.raises(ValueError, match=r"estimator 'wrong' returned moves of shape \(6,\)"):
        played(methods.cc_fedavg(P, estimator=wrong))
    with pytest.raises(ValueError, match=r"estimator 'numbers' returned moves as ndarray"):
        played(methods.cc_fedavg(P, estimator=estimators.Estimator("numbers", lambda view: view.last_move.numpy())))


def test_a_note_of_the_wrong_shape_or_of_no_size_is_named() -> None:
    flat = estimators.Estimator("flat", lambda view: view.last_move, note=lambda view: view.model[:1], state_size=1)
    with pytest.raises(
        ValueError, match=r"estimator 'flat' noted numbers of shape \(1,\), but 9 trained clients with 1"
    ):
        played(methods.cc_fedavg(P, estimator=flat))
    with pytest.raises(ValueError, match="estimator 'forgets' has a note and the state_size 0"):
        estimators.Estimator("forgets", lambda view: view.last_move, note=lambda view: view.trained_moves)


def test_choices_that_are_none_are_refused() -> None:
    method = methods.cc_fedavg(P)
    with pytest.raises(ValueError, match=r"--p is 2\.0 for client 1"):
        method.but(p=torch.tensor([1.0, 2.0], dtype=torch.float64))
    with pytest.raises(ValueError, match="speaks_for is 'all', but it must be 'selected' or 'everyone'"):
        method.but(speaks_for="all")
    with pytest.raises(ValueError, match=r"on_server is \(0, -1\), but the clients are 0 to 8"):
        played(method.but(keep="mixed", on_server=(0, -1)))
    nobody = played(method.but(keep="mixed", on_server=()))
    assert nobody.storage[1] == 0
    for wrong in ({"beta_1": 1.0}, {"beta_2": -0.1}, {"tau": 0.0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} is "):
            server.adam(**wrong)


@given(
    clients=st.integers(1, 12),
    rounds=st.integers(1, 12),
    participation=st.floats(0.01, 1.0),
    seed=st.integers(0, 1000),
    name=st.sampled_from(sorted(METHODS)),
    data=st.data(),
)
def test_every_selected_client_is_accounted_for(
    clients: int, rounds: int, participation: float, seed: int, name: str, data: st.DataObject
) -> None:
    p = budgets.explicit(data.draw(st.lists(st.floats(0.01, 1.0), min_size=clients, max_size=clients)))
    method = made(name, p)
    run = played(method, rounds, participation, seed, Quadratic.drawn(clients, 2, seed))
    assert torch.isfinite(run.models).all()
    trained_before: set[int] = set()
    for t, outcome in enumerate(run.outcomes):
        chosen_now = outcome.selected.tolist()
        assert len(set(chosen_now)) == len(chosen_now) == max(int(participation * clients + 1e-9), 1)
        assert not bool((outcome.trained & outcome.estimated).any())
        full = method.work(method.budget(outcome.selected), STEPS)
        assert torch.equal(outcome.steps, torch.where(outcome.trained, full, 0))
        now = set(outcome.selected[outcome.trained].tolist())
        skipped = set(chosen_now) - now
        if method.estimator.needs_past:
            assert skipped <= trained_before  # a client without a past trains
            assert int(outcome.estimated.sum()) == len(skipped)
        else:
            assert not bool(outcome.estimated.any())
        silent = ~outcome.trained & ~outcome.estimated
        if method.schedule.foreseeable:
            assert int(outcome.traffic.up[silent].sum() + outcome.traffic.down[silent].sum()) == 0
        trained_before |= now
        if t == 0 and name in ("strategy-1", "strategy-2", "cc-fedavg", "cc-fedavg-c", "mifa"):
            assert bool(outcome.trained.all())


def test_a_round_that_comes_to_nan_changes_nothing_and_names_the_client() -> None:
    def broken(view: estimators.View) -> Tensor:
        estimates = view.last_move.clone()
        estimates[view.clients == 5] = torch.nan
        return estimates

    width = PROBLEM.b.shape[1]
    method = methods.cc_fedavg(P, "round-robin", estimator=broken).but(server=server.sgd(momentum=0.9))
    state = start(method, torch.zeros(width, dtype=torch.float64), CLIENTS)
    for t in range(2):
        playing = play(state, method, torch.arange(CLIENTS), steps=STEPS, rounds=ROUNDS)
        work = next(playing)
        before = state.model, state.server, state.history.last_rounds(torch.arange(CLIENTS)).tolist()
        moves = torch.ones(len(work.clients), width, dtype=torch.float64)
        if t == 0:
            with pytest.raises(StopIteration):
                playing.send(moves)
            continue
        with pytest.raises(NotFinite, match="the move that estimator 'broken' gives for client 5 is not finite"):
            playing.send(moves)
        assert (state.model, state.server) == before[:2]
        assert state.history.last_rounds(torch.arange(CLIENTS)).tolist() == before[2]
        assert state.round == 1


def test_a_server_that_comes_to_nan_is_named() -> None:
    careless = server.Server("careless", advance=lambda x, move, state: (x / 0 * 0, {}))
    with pytest.raises(NotFinite, match="the global model that server 'careless' makes of the moves is not finite"):
        played(methods.fedavg().but(server=careless))


@pytest.mark.parametrize(
    ("decide", "got"),
    [
        (lambda now: torch.ones(len(now.clients), dtype=torch.int64), r"torch.int64 of shape \(9,\)"),
        (lambda now: torch.ones(3, dtype=torch.bool), r"torch.bool of shape \(3,\)"),
        (lambda now: [True] * len(now.clients), "list"),
    ],
)
def test_a_schedule_that_does_not_say_yes_or_no_is_named(decide: Callable[[Moment], Tensor], got: str) -> None:
    with pytest.raises(ValueError, match=f"schedule 'odd' returned {got}, but 9 selected clients need bool"):
        played(methods.strategy_1(P, Schedule("odd", decide)))


def test_parts_may_be_given_as_they_come() -> None:
    def half(view: estimators.View) -> Tensor:
        return 0.5 * view.last_move

    built = Method("mine", P.tolist(), "round-robin", half)  # type: ignore[arg-type]
    changed = methods.fedavg().but(name="mine", p=P.tolist(), schedule="round-robin", estimator=half)
    wanted = methods.cc_fedavg(P, "round-robin", estimator=half)
    for method in (built, changed):
        assert torch.allclose(played(method).models, played(wanted).models, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"schedule is 'ad-hok'; did you mean 'ad-hoc'"):
        methods.cc_fedavg(P, "ad-hok")
    with pytest.raises(ValueError, match=r"estimator is 0\.5, but it must be an Estimator or a function"):
        methods.cc_fedavg(P, estimator=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"--p is 0\.0 for client 1"):
        methods.cc_fedavg(P).but(p=[1, 0])
