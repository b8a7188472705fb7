"""Networks that cannot be used, each for another reason."""

import warnings

import torch
from torch import Tensor, nn


def too_narrow() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(63, 10))


def too_few() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10))


def with_statistics_of_the_batch() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10, track_running_stats=False))


def scripted() -> nn.Module:
    with warnings.catch_warnings(action="ignore"):  # PyTorch would rather not have it any more
        return torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))


def without_parameters() -> nn.Module:
    return nn.Flatten()


def broken() -> nn.Module:
    raise ZeroDivisionError("no net today")


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.scores(torch.normal(x.flatten(1), 1.0))


def with_noise() -> nn.Module:
    return Noisy()


def refuses() -> nn.Module:
    raise ValueError("not today")


class Asserts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        assert x.ndim == 2
        return self.scores(x)


def asserts() -> nn.Module:
    return Asserts()
