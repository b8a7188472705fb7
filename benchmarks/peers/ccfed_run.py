"""ccfed: `ccfed.simulate` with FedAvg, on the engine that `--engine` names."""

from __future__ import annotations

import torch
from workload import CIFAR_MEAN, CIFAR_STD, Stopwatch, Workload, from_command_line, load, partition

import ccfed
from ccfed import data, methods


class Lap:
    """An observer that stops the watch after each round and its evaluation."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def on_start(self, simulation: object) -> None:
        self.watch.start()

    def on_round(self, simulation: object, played: list) -> None:
        self.watch.lap(played[0][1].accuracy / 100)

    def on_end(self, simulation: object) -> None: ...


def federation(workload: Workload) -> data.Federation:
    inputs = None
    if workload.name == "cifar-cnn":
        mean, std = (tuple(map(float, values)) for values in (CIFAR_MEAN, CIFAR_STD))
        inputs = data.Inputs(scale=1 / 255, mean=mean, std=std, crop=4, flip=True)
    dataset = data.from_arrays(*load(workload.name, workload.data_dir), inputs=inputs)
    return dataset.split(data.explicit(partition(workload)), workload.clients)


def main() -> None:
    workload = from_command_line()
    torch.set_num_threads(workload.threads)
    watch = Stopwatch(workload)
    ccfed.simulate(
        federation(workload),
        methods.fedavg(),
        model="mlp" if workload.name == "fmnist-mlp" else "cnn",
        rounds=workload.rounds,
        steps=workload.steps,
        batch_size=workload.batch_size,
        lr=workload.lr,
        participation=workload.per_round / workload.clients,
        seeds=(workload.seed,),
        device="cpu",
        engine=workload.engine,
        observers=[Lap(watch)],
    )
    watch.report()


if __name__ == "__main__":
    main()
