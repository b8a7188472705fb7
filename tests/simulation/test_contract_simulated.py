"""The promises of the methods once more, now through the whole simulation: real data, a real network, both engines."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import nn

import ccfed
from ccfed import Method, budgets, methods
from ccfed.algorithm.methods import METHODS
from ccfed.data import Federation
from ccfed.simulation import Run, Runs
from ccfed.training import OneByOne, Together
from ccfed.training.engine import Jobs, Trained

ENGINES = ("one-by-one", "together")
P = budgets.levels(8, 4)


def simulated(federation: Federation, chosen: Sequence[Method] | Method, engine: str = "together", **settings) -> Runs:
    choices = {"rounds": 6, "steps": 3, "batch_size": 16, "lr": 0.1, **settings}
    return ccfed.simulate(federation, chosen, engine=engine, **choices)


def only(runs: Runs) -> Run:
    (run,) = runs.all
    return run


def made(name: str, p: torch.Tensor = P, **choices: object) -> Method:
    choices = {"tau": 3, **choices} if name == "cc-fedavg-c" else choices
    return METHODS[name]() if name == "fedavg" else METHODS[name](p, **choices)


@pytest.mark.parametrize("engine", ENGINES)
def test_with_all_budgets_at_one_every_method_is_fedavg(digits_of_8: Federation, engine: str) -> None:
    """To the bit on both engines: the same jobs give the same moves, whatever else is in the batch."""
    everything = torch.ones(8, dtype=torch.float64)
    runs = simulated(digits_of_8, [made(name, everything) for name in METHODS], engine)
    for name in METHODS:
        assert np.array_equal(runs[name].runs[0].model, runs["fedavg"].runs[0].model), name
        assert np.array_equal(runs[name].accuracy, runs["fedavg"].accuracy), name


@pytest.mark.parametrize("name", ["strategy-2", "cc-fedavg", "cc-fedavg-c", "fedopt", "mifa"])
def test_algorithms_1_2_and_3_give_the_same_model(digits_of_8: Federation, name: str) -> None:
    kept = [made(name, keep=keep).but(name=keep) for keep in ("client", "server", "mixed")]
    runs = simulated(digits_of_8, kept, participation=0.5)
    models = [runs[keep].runs[0].model for keep in ("client", "server", "mixed")]
    assert np.array_equal(models[0], models[1])
    assert np.array_equal(models[0], models[2])
    assert runs["server"].runs[0].storage_client_bytes == 0 < runs["client"].runs[0].storage_client_bytes
    assert runs["server"].runs[0].total("bytes_up") < runs["client"].runs[0].total("bytes_up")


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_run(digits_of_8: Federation, name: str) -> None:
    first, again, other = (
        only(simulated(digits_of_8, made(name), participation=0.6, seeds=[seed])) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.model, again.model)
    assert np.array_equal(first.column("loss"), again.column("loss"))
    assert not np.array_equal(first.model, other.model)


@pytest.mark.parametrize("name", METHODS)
def test_both_engines_come_to_the_same_model(digits_of_8: Federation, name: str) -> None:
    slow, fast = (only(simulated(digits_of_8, made(name), engine)) for engine in ENGINES)
    assert np.abs(slow.model - fast.model).max() < 1e-5
    assert np.abs(slow.column("accuracy") - fast.column("accuracy")).max() < 0.5
    for column in ("trained", "estimated", "silent", "client_steps", "bytes_up", "bytes_down"):
        assert np.array_equal(slow.column(column), fast.column(column))


def test_a_federation_does_not_notice_the_others(digits_of_8: Federation) -> None:
    alone = {name: only(simulated(digits_of_8, made(name))) for name in ("cc-fedavg", "fednova", "strategy-1")}
    company = simulated(digits_of_8, [made(name) for name in METHODS], seeds=[0, 3])
    for name, run in alone.items():
        assert np.array_equal(company[name].runs[0].model, run.model), name


@pytest.mark.parametrize(("engine", "kind"), [("one-by-one", OneByOne), ("together", Together)])
def test_the_order_in_which_clients_are_trained_does_not_matter(
    digits_of_8: Federation, engine: str, kind: type[OneByOne] | type[Together], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = only(simulated(digits_of_8, made("cc-fedavg"), engine))
    train = kind.train

    def backwards(self: OneByOne | Together, jobs: Jobs) -> Trained:
        order = torch.arange(len(jobs)).flip(0)
        trained = train(self, jobs.take(order))
        return Trained(trained.moves[order], trained.loss[order])

    monkeypatch.setattr(kind, "train", backwards)
    backward = only(simulated(digits_of_8, made("cc-fedavg"), engine))
    assert np.array_equal(forward.model, backward.model)


def test_a_skipping_client_makes_no_steps(digits_of_8: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 5, counted where the work is done: the engine is given just the client-steps that are reported."""
    given = []
    train = Together.train

    def counted(self: Together, jobs: Jobs) -> Trained:
        assert bool((jobs.steps > 0).all())
        given.append(int(jobs.steps.sum()))
        return train(self, jobs)

    monkeypatch.setattr(Together, "train", counted)
    run = only(simulated(digits_of_8, made("cc-fedavg", schedule="round-robin"), rounds=8))
    trained_in_8_rounds = 8 + 8 + 4 + 4 + 2 + 2 + 1 + 1
    assert sum(given) == run.total("client_steps") == trained_in_8_rounds * 3
    assert run.client_steps_full == 8 * 8 * 3
    assert run.compute_saved == pytest.approx(1 - trained_in_8_rounds / 64)


def test_batches_go_on_across_rounds(digits_of_8: Federation) -> None:
    """With one client, T rounds of K steps are T K steps: no epoch is begun anew, whatever T is."""
    federation = ccfed.data.load("digits").split(ccfed.data.iid(), clients=1)
    runs = [only(simulated(federation, methods.fedavg(), rounds=t, steps=60 // t)) for t in (1, 4, 20)]
    for run in runs[1:]:
        assert np.abs(run.model - runs[0].model).max() < 1e-4


def frozen() -> nn.Module:
    layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    layers[1].requires_grad_(False)
    return layers


def half_frozen() -> nn.Module:
    layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    layers[1].bias.requires_grad_(False)
    return layers


def shared() -> nn.Module:
    layer = nn.Linear(64, 64)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(64, 10))


def shared_without_parameters() -> nn.Module:
    relu, drop = nn.ReLU(), nn.Dropout(0.2)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), relu, drop, nn.Linear(32, 32), relu, drop, nn.Linear(32, 10))


def derived() -> nn.Module:
    layer = nn.Linear(64, 10)
    nn.utils.parametrize.register_parametrization(layer, "weight", nn.Tanh())
    return nn.Sequential(nn.Flatten(), layer)


@pytest.mark.parametrize("make", [frozen, half_frozen, shared, shared_without_parameters, derived])
@pytest.mark.parametrize("ready", [True, False])
def test_frozen_shared_and_derived_parameters_are_trained_as_they_should(
    digits_of_8: Federation, make: Callable[[], nn.Module], ready: bool
) -> None:
    model = make().double() if ready else lambda: make().double()
    slow, *others = (
        only(simulated(digits_of_8, made("cc-fedavg"), engine, model=model)) for engine in (*ENGINES, "auto")
    )
    assert len(slow.model) == sum(p.numel() for p in make().parameters() if p.requires_grad)
    assert all(np.abs(slow.model - other.model).max() < 1e-9 for other in others)
    assert slow.accuracy_last > 10
