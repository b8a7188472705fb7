"""The workloads' models, batches and evaluation in PyTorch, for the peers that train with it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from workload import CIFAR_MEAN, CIFAR_STD, Workload, load, partition


def model(workload: Workload) -> nn.Module:
    """The paper's MLP or CNN, in PyTorch's default initialisation under the workload's seed."""
    with torch.random.fork_rng():
        torch.manual_seed(workload.seed)
        if workload.name == "fmnist-mlp":
            return nn.Sequential(
                nn.Flatten(), nn.Linear(784, 50), nn.Dropout(0.5), nn.ReLU(), nn.Linear(50, 10)
            )  # fmt: skip
        return nn.Sequential(
            nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
        )  # fmt: skip


def to_input(workload: Workload, images: Tensor) -> Tensor:
    """uint8 images as the model's float32 input."""
    if workload.name == "fmnist-mlp":
        return images.float().div_(127.5).sub_(1)
    mean, std = (torch.from_numpy(v * 255).view(3, 1, 1) for v in (CIFAR_MEAN, CIFAR_STD))
    return images.float().sub_(mean).div_(std)


def crop_and_flip(images: Tensor) -> Tensor:
    """Each image cropped at random from itself padded with 4 black pixels a side, and mirrored half of the time."""
    n = len(images)
    windows = F.pad(images, (4, 4, 4, 4)).unfold(2, 32, 1).unfold(3, 32, 1)
    cropped = windows[torch.arange(n), :, torch.randint(9, (n,)), torch.randint(9, (n,))]
    return torch.where(torch.rand(n, 1, 1, 1) < 0.5, cropped.flip(3), cropped)


class Batches:
    """One client's training data as a loader: each pass gives exactly `steps` batches, over as many epochs as it takes.

    What a `DataLoader` over tensors would give, without fetching image by image: no peer pays for that.
    """

    def __init__(self, workload: Workload, client: int) -> None:
        arrays = load(workload.name, workload.data_dir)
        mine = partition(workload)[client]
        self.workload, self.y = workload, torch.from_numpy(arrays.train_y[mine])
        images = torch.from_numpy(arrays.train_x[mine])
        self.augment = workload.name == "cifar-cnn"
        self.x = images if self.augment else to_input(workload, images)

    def __len__(self) -> int:
        return self.workload.steps

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        left = self.workload.steps
        while left:
            for index in torch.randperm(len(self.y)).split(self.workload.batch_size)[:left]:
                x = self.x[index]
                yield (to_input(self.workload, crop_and_flip(x)) if self.augment else x), self.y[index]
                left -= 1


@cache
def batches(workload: Workload, client: int) -> Batches:
    """The client's loader, made once a process."""
    return Batches(workload, client)


@lru_cache(maxsize=1)
def test_set(workload: Workload) -> tuple[Tensor, Tensor]:
    """All test images as the model's input, and their labels."""
    arrays = load(workload.name, workload.data_dir)
    return to_input(workload, torch.from_numpy(arrays.test_x)), torch.from_numpy(arrays.test_y)


@torch.no_grad()
def accuracy(net: nn.Module, workload: Workload) -> float:
    """The share of the test set that `net` names rightly."""
    net.eval()
    x, y = test_set(workload)
    right = sum((net(a).argmax(1) == b).sum().item() for a, b in zip(x.split(1000), y.split(1000), strict=True))
    net.train()
    return right / len(y)
