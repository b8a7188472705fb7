"""Apps that were written for Flower's own FedAvg: two lines change, and nothing else."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from torch import nn

from ccfed import methods
from ccfed.flower import CCFedAvg, InProcessGrid, customize

CLIENTS, ROUNDS = 4, 8


def network() -> nn.Module:
    """With batch normalisation: parameters, running statistics and a counter."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def samples_of(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Small numbers, so that the running variances fall far from the 1 at which they begin."""
    generator = torch.Generator().manual_seed(client)
    x = 0.1 * torch.randn(40, 6, generator=generator)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def torch_app(mods: list[object]) -> ClientApp:
    """As Flower's own template for PyTorch has it: training, evaluation and their metrics."""
    app = ClientApp()

    def load(message: Message, context: Context) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
        model = network()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        return model, *samples_of(int(context.node_config["partition-id"]))

    @app.train(mods=mods)  # type: ignore[arg-type]
    def train(message: Message, context: Context) -> Message:
        model, x, y = load(message, context)
        optimiser = torch.optim.SGD(model.parameters(), lr=message.content["config"]["lr"], momentum=0.9)
        for _ in range(20):
            loss = nn.functional.cross_entropy(model(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        counts = y.bincount(minlength=3).tolist()
        numbers = {"train_loss": float(loss.detach()), "num-examples": len(y), "counts": counts}
        metrics = MetricRecord(numbers)
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        model, x, y = load(message, context)
        model.eval()
        with torch.no_grad():
            scores = model(x)
        numbers = {
            "eval_loss": float(nn.functional.cross_entropy(scores, y)),
            "eval_acc": float((scores.argmax(1) == y).double().mean()),
            "num-examples": len(y),
        }
        return Message(content=RecordDict({"metrics": MetricRecord(numbers)}), reply_to=message)

    return app


def run(strategy: Strategy, app: ClientApp, first: ArrayRecord) -> Result:
    return strategy.start(
        grid=InProcessGrid(app, CLIENTS),
        initial_arrays=first,
        train_config=ConfigRecord({"lr": 0.1}),
        num_rounds=ROUNDS,
    )


def test_whoever_can_afford_everything_has_flowers_own_fedavg() -> None:
    first = ArrayRecord(network().state_dict())
    stock = run(FedAvg(), torch_app([]), first)
    mine = run(CCFedAvg([1.0] * CLIENTS), torch_app([customize()]), first)
    for name, array in stock.arrays.items():
        if "num_batches" not in name:
            there = mine.arrays[name].numpy()
            assert there == pytest.approx(array.numpy(), rel=2e-4, abs=2e-5), name
    for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp"):
        expected, found = getattr(stock, kind), getattr(mine, kind)
        assert list(expected) == list(found) == list(range(1, ROUNDS + 1))
        for number, metrics in expected.items():
            assert list(found[number]) == list(metrics)
            for name, value in metrics.items():
                assert found[number][name] == pytest.approx(value, rel=1e-3, abs=0.02), name


@pytest.mark.parametrize("keep", ["client", "server", "mixed"])
@pytest.mark.parametrize("make", [methods.cc_fedavg, methods.strategy_2])
def test_batch_normalisation_stays_sound(make: Callable[..., object], keep: str) -> None:
    strategy = CCFedAvg(make([1.0, 0.5, 0.25, 0.25], schedule="round-robin"), keep=keep)  # type: ignore[arg-type]
    result = run(strategy, torch_app([customize()]), ArrayRecord(network().state_dict()))
    model = network()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    assert bool((model[1].running_var > 0).all())  # type: ignore[union-attr, operator]
    assert all(np.isfinite(m["eval_loss"]) for m in result.evaluate_metrics_clientapp.values())
    assert int(model[1].num_batches_tracked) == 0  # type: ignore[union-attr, arg-type]


def test_statistics_by_other_names_are_told_apart() -> None:
    app = ClientApp()

    @app.train(mods=[customize()])
    def train(message: Message, context: Context) -> Message:
        model = {name: array.numpy() for name, array in message.content["arrays"].items()}
        seen = 0.1 * (1 + context.node_config["partition-id"])
        made = {"layer/mean": model["layer/mean"] * 0 + np.float32(seen), "layer/w": model["layer/w"] + np.float32(1)}
        return Message(RecordDict({"arrays": ArrayRecord({n: Array(a) for n, a in made.items()})}), reply_to=message)

    first = ArrayRecord({n: Array(np.full(2, 9, dtype=np.float32)) for n in ("layer/mean", "layer/w")})
    strategy = CCFedAvg(
        [1.0, 0.5], schedule="round-robin", statistics=["*/mean"], weighted_by_key=None, fraction_evaluate=0
    )
    arrays = strategy.start(InProcessGrid(app, 2), first, num_rounds=2).arrays
    assert list(arrays) == ["layer/mean", "layer/w"]
    assert arrays["layer/mean"].numpy() == pytest.approx(0.1)  # client 1 skipped in the second round
    assert arrays["layer/w"].numpy() == pytest.approx(11)
    with pytest.raises(ValueError, match="at least one array"):
        CCFedAvg([1.0], statistics=["*"]).start(InProcessGrid(app, 1), first)
