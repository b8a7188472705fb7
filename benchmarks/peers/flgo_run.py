"""FLGo: a task generated from a configuration file and its FedAvg, with `num_steps` local steps."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path

import torchvision_names  # noqa: F401
from flgo import gen_benchmark_from_file, gen_task_by_, init
from flgo.algorithm.fedbase import BasicClient, BasicServer
from flgo.benchmark.partition import BasicPartitioner
from flgo.benchmark.toolkits.cv.classification import FromDatasetPipe
from flgo.experiment.logger.simple_logger import SimpleLogger
from torch import Tensor
from workload import Stopwatch, from_command_line, partition
from workload_torch import batches

# FLGo says how one sample is fetched; the PyTorch of today asks that it says so for a batch too.
FromDatasetPipe.TaskDataset.__getitems__ = lambda self, indices: [self[i] for i in indices]

workload = from_command_line()
watch = Stopwatch(workload)


class Clients(BasicPartitioner):
    """The workload's own partition."""

    num_clients = workload.clients

    def __call__(self, data: object) -> list[list[int]]:
        return [mine.tolist() for mine in partition(workload)]


class FedAvg:
    """FLGo's FedAvg (its basic server and client), the client reading the batches that all peers read."""

    Server = BasicServer

    class Client(BasicClient):
        def get_batch_data(self) -> tuple[Tensor, Tensor]:
            if self.current_steps == 0:
                self.data_loader = iter(batches(workload, self.id))
            self.current_steps = (self.current_steps + 1) % self.num_steps
            return next(self.data_loader)


class Lap(SimpleLogger):
    """FLGo's simple logger, which evaluates before the first round and after each; then the watch is stopped."""

    rounds = -1

    def log_once(self, *args: object, **kwargs: object) -> None:
        super().log_once(*args, **kwargs)
        self.rounds += 1
        if self.rounds:
            watch.lap(self.output["test_accuracy"][-1])


def main() -> None:
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.insert(0, folder)
        name = gen_benchmark_from_file("shared_workload", str(here / "flgo_task.py"))
        benchmark = importlib.import_module(name)
        benchmark.visualize = lambda *_: None  # a picture of 100 clients takes minutes
        gen_task_by_(benchmark, Clients(), task_path="task")
        options = {
            "num_rounds": workload.rounds,
            "num_steps": workload.steps,
            "proportion": workload.per_round / workload.clients,
            "batch_size": workload.batch_size,
            "test_batch_size": 1000,
            "learning_rate": workload.lr,
            "train_holdout": 0.0,
            "torch_num_threads": workload.threads,
            "no_tqdm": True,
        }
        watch.start()
        init("task", FedAvg, options, Logger=Lap).run()
        watch.report()


if __name__ == "__main__":
    main()
