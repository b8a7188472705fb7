"""The same federation, simulated and on Flower, has the same global model, round by round."""

import pytest
import torch
from flwr.app import ArrayRecord, MetricRecord
from small_app import CLIENTS, STEPS, App, simulated, vector

from ccfed import Method, View, budgets, estimators, methods, server
from ccfed.data import Federation
from ccfed.flower import CCFedAvg, InProcessGrid

ROUNDS = 6
P = budgets.levels(CLIENTS, beta=4)


def half_then_drift(view: View) -> torch.Tensor:
    """An estimator of one's own, which looks at all that a View has."""
    return 0.5 * view.last_move - 0.1 * (view.model - view.trained_from) / view.age[:, None]


def noting() -> estimators.Estimator:
    """An estimator with a state: the length of each client's move before its last."""
    return estimators.Estimator(
        "noting",
        lambda view: view.last_move * (1 + 0.1 * view.state),
        note=lambda view: view.trained_moves.norm(dim=1, keepdim=True),
        state_size=1,
    )


def shrinking() -> estimators.Estimator:
    """An estimator whose note compares a client's new move with the one before."""

    def note(view: View) -> torch.Tensor:
        before, now = view.last_move.norm(dim=1), view.trained_moves.norm(dim=1)
        return torch.stack([(now / before.clamp(min=1e-3)).clamp(max=2.0), view.age.to(now)], dim=1)

    return estimators.Estimator(
        "shrinking",
        lambda view: view.last_move * view.state[:, :1] ** (view.age / view.state[:, 1])[:, None],
        note=note,
        state_size=2,
    )


METHODS: dict[str, Method] = {
    "fedavg": methods.fedavg(),
    "dropout": methods.dropout(P),
    "strategy-1": methods.strategy_1(P),
    "strategy-2": methods.strategy_2(P),
    "cc-fedavg": methods.cc_fedavg(P),
    "round-robin": methods.cc_fedavg(P, schedule="round-robin"),
    "cc-fedavg-c": methods.cc_fedavg_c(P, tau=3),
    "fedopt": methods.fedopt(P, server.adam()),
    "own": methods.cc_fedavg(P, estimator=half_then_drift),
    "noting": methods.cc_fedavg(P, estimator=noting()),
    "shrinking": methods.cc_fedavg(P, estimator=shrinking()),
    "momentum": methods.cc_fedavg(P).but(server=server.sgd(1.0, momentum=0.5)),
}


def models_of(strategy: CCFedAvg, grid: InProcessGrid, first: ArrayRecord, rounds: int) -> list[torch.Tensor]:
    """The global model after each round."""
    models: list[torch.Tensor] = []

    def keep(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        models.append(vector(arrays))
        return None

    strategy.start(grid, first, num_rounds=rounds, evaluate_fn=keep)
    return models[1:]


@pytest.mark.parametrize("keep", ["client", "server", "mixed"])
@pytest.mark.parametrize("name", METHODS)
def test_same_global_model_as_in_a_simulation(federation: Federation, first: ArrayRecord, name: str, keep: str) -> None:
    method = METHODS[name].but(keep=keep)
    app = App(federation)
    strategy = CCFedAvg(method, clients=CLIENTS, steps=STEPS, seed=5, fraction_evaluate=0, weighted_by_key=None)
    models = models_of(strategy, InProcessGrid(app.app, CLIENTS), first, ROUNDS)
    run = simulated(federation, method, ROUNDS, seeds=[5])[method.name].runs[0]
    assert torch.allclose(models[-1].double(), torch.from_numpy(run.model), rtol=1e-5, atol=1e-6)
    for record, there in zip(strategy.journal.records, run.records, strict=True):
        assert (record.selected, record.trained, record.estimated, record.silent, record.client_steps) == (
            there.selected,
            there.trained,
            there.estimated,
            there.silent,
            there.client_steps,
        )
    assert len(app.trained) == sum(record.trained for record in run.records)
