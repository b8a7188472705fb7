"""Networks that cannot be used, each for another reason."""

from torch import nn


def too_narrow() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(63, 10))


def too_few() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10))


def without_parameters() -> nn.Module:
    return nn.Flatten()


def broken() -> nn.Module:
    raise ZeroDivisionError("no net today")
