"""FedLab: its standalone pipeline, with the FedAvg server and the serial client trainer of its tutorials."""

from __future__ import annotations

import random

import torch
import torchvision_names  # noqa: F401
from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.core.standalone import StandalonePipeline
from workload import Stopwatch, Workload, from_command_line
from workload_torch import Batches, accuracy, batches, model


class Federation:
    """The one method that FedLab's trainers ask of a federated data set."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def get_dataloader(self, client: int, batch_size: int) -> Batches:
        return batches(self.workload, client)


class Pipeline(StandalonePipeline):
    """FedLab's loop with the evaluation that it leaves to its users."""

    watch: Stopwatch

    def evaluate(self) -> None:
        self.watch.lap(accuracy(self.handler.model, self.watch.workload))


def main() -> None:
    workload = from_command_line()
    torch.set_num_threads(workload.threads)
    random.seed(workload.seed)
    net = model(workload)
    handler = FedAvgServerHandler(net, workload.rounds, workload.per_round / workload.clients)
    trainer = FedAvgSerialClientTrainer(net, workload.clients)
    trainer.setup_dataset(Federation(workload))
    trainer.setup_optim(epochs=1, batch_size=workload.batch_size, lr=workload.lr)
    pipeline = Pipeline(handler, trainer)
    pipeline.watch = Stopwatch(workload)
    pipeline.main()
    pipeline.watch.report()


if __name__ == "__main__":
    main()
