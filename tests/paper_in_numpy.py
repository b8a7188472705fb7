"""The paper's methods once more, in plain NumPy: what `ccfed.algorithm` is compared with.

The problem is a quadratic one: client i's loss is sum_j a_ij (x_j - b_ij)^2 / 2, and its training is gradient descent.
Nothing here uses ccfed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Quadratic:
    """Curvatures a and minima b, both [clients, parameters]; `lr` is the clients' learning rate."""

    a: Vector
    b: Vector
    lr: float = 0.1

    @classmethod
    def drawn(cls, clients: int, parameters: int, seed: int) -> "Quadratic":
        draw = np.random.default_rng(seed)
        return cls(draw.uniform(0.2, 2.0, (clients, parameters)), draw.normal(size=(clients, parameters)))

    def move(self, x: Vector, client: int, steps: int) -> Vector:
        """What `steps` steps of gradient descent from x change."""
        y = x.copy()
        for _ in range(steps):
            y = y - self.lr * self.a[client] * (y - self.b[client])
        return y - x


Past = tuple[Vector, Vector]  # the last move, and the model it started from
Estimate = Callable[[int, Vector, Past], Vector]


def last_move(t: int, x: Vector, past: Past) -> Vector:
    return past[0]


def last_model(t: int, x: Vector, past: Past) -> Vector:
    return past[1] + past[0] - x


def combined(tau: int) -> Estimate:
    return lambda t, x, past: last_move(t, x, past) if t < tau else last_model(t, x, past)


def federated(
    problem: Quadratic, x: Vector, selected: Sequence[Sequence[int]], due: NDArray[np.bool_], steps: int,
    estimate: Estimate | None, everyone: bool = False,
    server: Callable[[Vector, Vector], Vector] = lambda x, mean: x + mean,
) -> list[Vector]:  # fmt: skip
    """Algorithm 1 with its variants: x_1 .. x_T. `due[t, i]` says whether client i's schedule lets it train in round t;
    `estimate=None` leaves skippers out (Strategy 1); `everyone` counts those who were not selected, too (MIFA)."""
    past: dict[int, Past] = {}
    out = []
    for t, clients in enumerate(selected):
        new: dict[int, Vector] = {}
        for i in clients:
            if due[t, i] or (estimate is not None and i not in past):
                new[i] = problem.move(x, i, steps)
        moves = dict(new)
        for i in past if everyone else clients:
            if i not in new and estimate is not None:
                moves[i] = estimate(t, x, past[i])
        past |= {i: (move, x) for i, move in new.items()}
        if moves:
            x = server(x, np.mean([moves[i] for i in sorted(moves)], axis=0))
        out.append(x)
    return out


def partial_work(
    problem: Quadratic, x: Vector, selected: Sequence[Sequence[int]], p: Vector, steps: int, normalised: bool
) -> list[Vector]:
    """FedNova: client i makes int(p_i K) steps; moves are averaged plainly, or per step (Wang et al., 2020)."""
    out = []
    for clients in selected:
        made = np.array([max(int(p[i] * steps), 1) for i in clients])
        moves = np.array([problem.move(x, i, k) for i, k in zip(clients, made, strict=True)])
        x = x + (made.mean() * (moves / made[:, None]).mean(0) if normalised else moves.mean(0))
        out.append(x)
    return out


class Momentum:
    """FedOpt's server with SGD: the velocity is the sum of all past means, each older one weighted down."""

    def __init__(self, lr: float, momentum: float) -> None:
        self.lr, self.momentum, self.velocity = lr, momentum, np.zeros(())

    def __call__(self, x: Vector, mean: Vector) -> Vector:
        self.velocity = self.momentum * self.velocity + mean
        return x + self.lr * self.velocity


class Adaptive:
    """FedAdam and FedYogi (Reddi et al., 2021, Algorithm 2), with the moments started at 0 and tau^2."""

    def __init__(self, kind: str, lr: float = 0.01, beta_1: float = 0.9, beta_2: float = 0.99, tau: float = 1e-3):
        self.kind, self.lr, self.beta_1, self.beta_2, self.tau = kind, lr, beta_1, beta_2, tau
        self.m, self.v = np.zeros(()), np.array(tau**2)

    def __call__(self, x: Vector, mean: Vector) -> Vector:
        square = mean**2
        self.m = self.beta_1 * self.m + (1 - self.beta_1) * mean
        if self.kind == "adam":
            self.v = self.beta_2 * self.v + (1 - self.beta_2) * square
        else:
            self.v = self.v - (1 - self.beta_2) * square * np.sign(self.v - square)
        return x + self.lr * self.m / (np.sqrt(self.v) + self.tau)
