"""What an engine is given and what it gives back: the door between the simulation and the ways of training."""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from ccfed.data.inputs import Inputs
from ccfed.models.network import Network

Precision = Literal["float32", "tf32", "bfloat16"]
"""How exactly a GPU multiplies matrices while it trains; parameters and sums are float32 in all three."""


@dataclass(frozen=True, eq=False)
class Task:
    """What all jobs of an engine share: the network, the samples on the device, and the batch size.

    `train_x`, `train_y`, `test_x`, `test_y` lie on `device` as stored; `members` (int64) holds the sample indices of
    all clients of all federations, one run after another. `dtype` is the type of parameters and inputs.
    """

    network: Network
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    inputs: Inputs
    members: Tensor
    batch_size: int
    device: torch.device
    dtype: torch.dtype = torch.float32

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train_x.shape[1:])


@dataclass(frozen=True, eq=False)
class Jobs:
    """J trainings to be done side by side, each of a client of some federation.

    Job j starts at `models[model_of[j]]` (`models` [M, parameters] on the device), on the `size[j]` samples that
    `members[offset[j]:]` names, as its client's `first[j]`-th step of all time, and makes `steps[j]` steps at
    `lr[j]`. `key[j]` is the client's stream. All but `models` are host tensors [J]: int64, and float64 for `lr`.
    """

    models: Tensor
    model_of: Tensor
    offset: Tensor
    size: Tensor
    key: Tensor
    first: Tensor
    steps: Tensor
    lr: Tensor

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, which: Tensor) -> "Jobs":
        """The jobs at the indices `which` (int64), in that order."""
        fields = (self.model_of, self.offset, self.size, self.key, self.first, self.steps, self.lr)
        return Jobs(self.models, *(tensor[which] for tensor in fields))


@dataclass(frozen=True, eq=False)
class Trained:
    """Moves [J, parameters] and the mean training loss of each job [J], on the device."""

    moves: Tensor
    loss: Tensor


class JobFailed(RuntimeError):
    """The model raised an exception (the cause) in the training of the `job`-th of the jobs."""

    def __init__(self, job: int, cause: Exception) -> None:
        super().__init__(f"{type(cause).__name__}: {cause}")
        self.job = job


class Engine(Protocol):
    """A way of training: all engines give the same moves, within rounding."""

    name: str

    def train(self, jobs: Jobs) -> Trained:
        """Makes every job's steps of SGD."""

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy in percent and mean loss on the test samples of each of `models` [M, parameters]: two float64
        [M]."""
