"""pfl-research: its federated averaging on the simulated backend; `torchrun` starts it for more than one process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.selector import get_framework_module
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from workload import Stopwatch, Workload, from_command_line
from workload_torch import Batches, batches, model, test_set


class Net(torch.nn.Module):
    """The workload's model with the two methods that pfl asks for."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.net = model(workload)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.train()
        return torch.nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        self.eval()
        return {"accuracy": Weighted((self(x).argmax(1) == y).sum().item(), len(y))}


class User(Dataset):
    """A user whose one local epoch is the workload's local steps."""

    def __init__(self, loader: Batches) -> None:
        super().__init__((loader.x, loader.y))
        self.loader = loader

    def iter(self, batch_size: int | None) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return iter(self.loader)


class Lap(TrainingProcessCallback):
    """Stops the watch after each round and its evaluation (it stands after the evaluation in the list)."""

    def __init__(self, watch: Stopwatch) -> None:
        self.watch = watch

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.watch.lap(aggregate_metrics.to_simple_dict()["Central val | accuracy"])
        return False, Metrics()


def main() -> None:
    workload = from_command_line()
    torch.set_num_threads(workload.threads)
    np.random.seed(workload.seed)  # noqa: NPY002 (pfl draws its users from NumPy's global state)
    net = Net(workload)
    pfl_model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    sampler = get_user_sampler("minimize_reuse", list(range(workload.clients)))
    users = FederatedDataset(lambda user: User(batches(workload, user)), sampler)
    watch = Stopwatch(workload)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=workload.rounds,
            evaluation_frequency=workload.rounds + 1,
            train_cohort_size=workload.per_round,
            val_cohort_size=0,
        ),
        backend=SimulatedBackend(training_data=users, val_data=users),
        model=pfl_model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=workload.lr, local_batch_size=workload.batch_size
        ),
        callbacks=[
            CentralEvaluationCallback(
                PyTorchTensorDataset(test_set(workload)), NNEvalHyperParams(local_batch_size=1000)
            ),
            Lap(watch),
        ],
    )
    if get_framework_module().distributed.global_rank == 0:
        watch.report()


if __name__ == "__main__":
    main()
