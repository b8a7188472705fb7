"""Budgets p_i: the share of its rounds in which client i can afford to train, 0 < p_i <= 1."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def levels(clients: int, beta: float) -> Tensor:
    """The paper's levels p_i = (1/2)^floor(beta * i / N): float64 [clients], from 1 downwards in about beta steps."""
    if beta < 0 or not math.isfinite(beta):
        raise ValueError(f"--beta is {beta}, but it must be a finite number of at least 0")
    i = torch.arange(clients, dtype=torch.float64)
    p = 0.5 ** torch.floor(beta * i / clients)
    if clients > 0 and not float(p[-1]) > 0:
        raise ValueError(f"--beta is {beta:g}, which is so large that the last p_i would be 0")
    return p


def groups(clients: int, r: float, W: float) -> Tensor:
    """The first r * N clients train one round in W, the others always: float64 [clients]."""
    if not 0 <= r <= 1:
        raise ValueError(f"--r is {r}, but the share of clients must lie in [0, 1]")
    if not (1 <= W < math.inf):
        raise ValueError(f"--W is {W}, but it must be a finite number of at least 1 (train one round in W)")
    p = torch.ones(clients, dtype=torch.float64)
    p[: round(r * clients)] = 1 / W
    return p


def explicit(p: Sequence[float] | Tensor, clients: int | None = None) -> Tensor:
    """The given p_i, checked: float64 [clients]. A single number serves all `clients`."""
    values = torch.as_tensor(p, dtype=torch.float64).flatten()
    if clients is not None and len(values) == 1:
        values = values.expand(clients).clone()
    if clients is not None and len(values) != clients:
        raise ValueError(
            f"--p has {len(values)} values, but there are {clients} clients: give one each, or one for all"
        )
    wrong = ~((values > 0) & (values <= 1))
    if wrong.any():
        i = int(wrong.nonzero()[0])
        raise ValueError(f"--p is {float(values[i])} for client {i}, but every p must lie in (0, 1]")
    return values


def energy_plan(
    rounds: int,
    trainings: Sequence[float] | Tensor | None = None,
    joules: Sequence[float] | Tensor | None = None,
    joules_per_training: Sequence[float] | Tensor | float | None = None,
) -> Tensor:
    """The p_i that spread what each device can afford over all `rounds`: float64 [clients].

    Give the number of `trainings` each device can afford, or its `joules` and the `joules_per_training`
    (one number, or one a device). A device that could train more often than there are rounds gets p_i = 1.
    """
    if not rounds >= 1:
        raise ValueError(f"--rounds is {rounds}, but it must be at least 1")
    if (trainings is None) == (joules is None):
        raise ValueError("an energy plan needs either trainings, or joules with joules_per_training, and not both")
    if trainings is not None:
        affordable = torch.as_tensor(trainings, dtype=torch.float64)
    elif joules_per_training is None:
        raise ValueError("an energy plan from joules needs joules_per_training: the cost of one round of training")
    else:
        cost = torch.as_tensor(joules_per_training, dtype=torch.float64)
        if not bool((cost > 0).all()):
            raise ValueError(f"--joules-per-training is {float(cost.min())}, but training must cost more than 0 joules")
        energy = torch.as_tensor(joules, dtype=torch.float64)
        if cost.numel() not in (1, energy.numel()) and energy.numel() != 1:
            raise ValueError(
                f"--joules-per-training has {cost.numel()} values and --joules {energy.numel()}: give as many, or one"
            )
        affordable = energy / cost
    whole = torch.floor(affordable.flatten() + 1e-9)  # half a training is none
    if not bool((whole >= 1).all()):  # also catches NaN
        i = int((~(whole >= 1)).nonzero()[0])
        source = "--joules" if trainings is None else "--trainings"
        count = float(affordable.flatten()[i])
        raise ValueError(f"{source}: client {i} can afford {count:g} trainings, but it needs at least 1")
    return torch.clamp(whole / rounds, max=1.0)
