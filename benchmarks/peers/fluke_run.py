"""fluke: its FedAVG with the API of its quick tutorial; the server evaluates each round."""

from __future__ import annotations

import torch
import torchvision_names  # noqa: F401
from fluke import DDict, FlukeENV
from fluke.algorithms.fedavg import FedAVG
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.utils import FederationObserver
from torchmetrics import Accuracy
from workload import Stopwatch, from_command_line
from workload_torch import batches, model, test_set


class Lap(FederationObserver):
    """Stops the watch at the end of each round, after its evaluation."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def server_evaluation(self, round: int, eval_type: str, evals: dict[str, float]) -> None:
        self.accuracy = evals["accuracy"]

    def end_round(self, round: int) -> None:
        self.watch.lap(self.accuracy)


def main() -> None:
    workload = from_command_line()
    torch.set_num_threads(workload.threads)
    environment = FlukeENV()
    environment.set_seed(workload.seed)
    accuracy = Accuracy(task="multiclass", num_classes=10)
    environment.set_evaluator(ClassificationEval(eval_every=1, n_classes=10, accuracy=accuracy))
    environment.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=True)
    loaders = [batches(workload, client) for client in range(workload.clients)]
    data = DummyDataContainer(
        clients_tr=loaders,
        clients_te=[None] * workload.clients,
        server_data=FastDataLoader(*test_set(workload), num_labels=10, batch_size=1000),
        num_classes=10,
    )
    settings = DDict(
        model=model(workload),
        client={
            "batch_size": workload.batch_size,
            "local_epochs": 1,
            "loss": "CrossEntropyLoss",
            "optimizer": {"name": "SGD", "lr": workload.lr},
            "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
        },
        server={"weighted": False},
    )
    federation = FedAVG(workload.clients, DataSplitter(data, distribution="iid"), settings)
    watch = Stopwatch(workload)
    federation.set_callbacks(Lap(watch))
    federation.run(workload.rounds, workload.per_round / workload.clients)
    watch.report()


if __name__ == "__main__":
    main()
