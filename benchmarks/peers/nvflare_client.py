"""NVFlare's training script: as in its PyTorch quick start, around the shared model and batches.

Also the two classes that its server makes by name: the model, and an aggregator that evaluates each round.
"""

from __future__ import annotations

from typing import Any

import nvflare.client as flare
import torch
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator
from workload import Stopwatch, Workload, from_command_line
from workload_torch import accuracy, batches, model


class Net(torch.nn.Module):
    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.net = model(Workload(**settings))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


class MeanAndLap(ModelAggregator):
    """The mean of the clients' models, evaluated on the test set; the last round prints the report."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.settings = settings
        self.models: list[dict[str, Any]] = []
        self.watch: Stopwatch | None = None

    def reset_stats(self) -> None:
        self.models = []
        self.watch = self.watch or Stopwatch(Workload(**self.settings))

    def accept_model(self, model: FLModel) -> None:
        self.models.append(model.params)

    def aggregate_model(self) -> FLModel:
        workload = self.watch.workload
        torch.set_num_threads(workload.threads)
        mean = {k: sum(m[k] for m in self.models) / len(self.models) for k in self.models[0]}
        net = Net(self.settings)
        net.load_state_dict({k: torch.as_tensor(v) for k, v in mean.items()})
        self.watch.lap(accuracy(net, workload))
        if len(self.watch.laps) == workload.rounds:
            self.watch.report()
        return FLModel(params=mean)


def main() -> None:
    workload = from_command_line()
    torch.set_num_threads(workload.threads)
    net = Net(vars(workload))
    flare.init()
    client = int(flare.get_site_name().removeprefix("site-")) - 1
    while flare.is_running():
        net.load_state_dict(flare.receive().params)
        net.train()
        optimizer = torch.optim.SGD(net.parameters(), lr=workload.lr)
        for x, y in batches(workload, client):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
        flare.send(FLModel(params=net.state_dict(), meta={"NUM_STEPS_CURRENT_ROUND": workload.steps}))


if __name__ == "__main__":
    main()
