"""The paper's multi-layer perceptron."""

import math

from torch import nn


def mlp(sample_shape: tuple[int, ...], classes: int, hidden: int = 50) -> nn.Module:
    """FC inputs-50, Dropout(0.5), ReLU, FC 50-classes; for samples of any shape, which it flattens."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(sample_shape), hidden),
        nn.Dropout(0.5),
        nn.ReLU(),
        nn.Linear(hidden, classes),
    )
