"""A small federation on Flower: the digits on a linear model, full batches, so that training draws nothing."""

from collections.abc import Callable

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

import ccfed
from ccfed.data import Federation
from ccfed.flower import customize

CLIENTS, STEPS, LR = 8, 3, 0.1


def linear(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A model without dropout: nothing in its training is random."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, classes))


class App:
    """A ClientApp whose training function counts its calls; `break_it(client, round)` may spoil one."""

    def __init__(self, federation: Federation, **choices: object) -> None:
        self.federation, self.trained, self.break_it = federation, [], None
        self.app = ClientApp()
        self.break_it: Callable[[int, int, RecordDict], None] | None = None

        @self.app.train(mods=[customize(**choices)])
        def train(message: Message, context: Context) -> Message:
            client = int(context.node_config["partition-id"])
            model = linear(federation.data.sample_shape, 10)
            model.load_state_dict(message.content["arrays"].to_torch_state_dict())
            members = federation.parts[client]
            x = federation.data.inputs.prepare(federation.data.train_x[members])
            y = federation.data.train_y[members]
            optimiser = torch.optim.SGD(model.parameters(), lr=LR)
            for _ in range(STEPS):
                loss = nn.functional.cross_entropy(model(x), y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            server_round = int(message.content["config"]["server-round"])
            self.trained.append((server_round - 1, client))
            metrics = MetricRecord({"num-examples": len(y), "train_loss": float(loss.detach())})
            content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
            if self.break_it is not None:
                self.break_it(client, server_round - 1, content)
            return Message(content, reply_to=message)


def evaluator(federation: Federation) -> Callable[[int, ArrayRecord], MetricRecord]:
    """Flower's `evaluate_fn` on the test samples."""
    x, y = federation.data.inputs.prepare(federation.data.test_x), federation.data.test_y

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = linear(federation.data.sample_shape, 10)
        model.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            scores = model(x)
        accuracy = float((scores.argmax(1) == y).double().mean())
        return MetricRecord({"accuracy": accuracy, "loss": float(nn.functional.cross_entropy(scores, y))})

    return evaluate


def vector(arrays: ArrayRecord) -> torch.Tensor:
    """A model as one vector."""
    return torch.cat([torch.from_numpy(array.numpy().copy()).flatten() for array in arrays.values()])


def simulated(federation: Federation, method: ccfed.Method, rounds: int, **choices: object) -> "ccfed.Runs":
    """The same federation in `ccfed.simulate`, on the reference engine."""
    biggest = int(federation.sizes.max())
    return ccfed.simulate(
        federation,
        method,
        model=linear,
        rounds=rounds,
        steps=STEPS,
        batch_size=biggest,
        lr=LR,
        engine="one-by-one",
        device="cpu",
        **choices,
    )
