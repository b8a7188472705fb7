"""How the moves of a round become the next global model."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

ServerState = dict[str, Tensor]


def mean(moves: Tensor, weights: Tensor | None, steps: Tensor) -> Tensor:
    """The mean of `moves` [C, parameters], weighted by `weights` (float [C], any scale) if given: [parameters]."""
    if weights is None:
        return moves.mean(0)
    share = (weights / weights.sum()).to(moves.device, moves.dtype)
    return (moves * share[:, None]).sum(0)


def mean_per_step(moves: Tensor, weights: Tensor | None, steps: Tensor) -> Tensor:
    """FedNova's: the mean of the moves per local step, times the mean number of `steps` (int [C]): [parameters]."""
    count = steps.to(torch.float64)
    average = count.mean() if weights is None else (count * weights).sum() / weights.sum()
    scale = (average / count).to(moves.device, moves.dtype)  # exactly 1 where all make the same number of steps
    return mean(moves * scale[:, None], weights, steps)


@dataclass(frozen=True)
class Server:
    """`combine(moves, weights, steps)` makes one move of many; `advance(x_t, move, state)` makes x_{t+1} and the next
    state.

    The state is a dictionary of tensors, empty at first.
    """

    name: str
    combine: Callable[[Tensor, Tensor | None, Tensor], Tensor] = mean
    advance: Callable[[Tensor, Tensor, ServerState], tuple[Tensor, ServerState]] = lambda x, move, state: (
        x + move,
        state,
    )


def averaging() -> Server:
    """x_{t+1} = x_t + mean move."""
    return Server("mean")


def normalised_averaging() -> Server:
    """FedNova's mean of moves per step (Wang et al., 2020)."""
    return Server("mean per step", combine=mean_per_step)


def _check(name: str, value: float, low: float, high: float, allowed: str) -> None:
    if not low <= value < high:
        raise ValueError(f"{name} is {value}, but it must be {allowed}")


def sgd(lr: float = 1.0, momentum: float = 0.0) -> Server:
    """SGD on the server, the mean move being minus the gradient; with the defaults it is plain averaging."""
    _check("--server-lr", lr, 1e-30, float("inf"), "above 0")
    _check("--server-momentum", momentum, 0, 1, "in [0, 1)")

    def advance(x: Tensor, move: Tensor, state: ServerState) -> tuple[Tensor, ServerState]:
        if momentum == 0:
            return x + lr * move, state
        velocity = momentum * state["velocity"] + move if state else move
        return x + lr * velocity, {"velocity": velocity}

    return Server(f"sgd(lr={lr:g}, momentum={momentum:g})", advance=advance)


def adam(lr: float = 0.01, beta_1: float = 0.9, beta_2: float = 0.99, tau: float = 1e-3) -> Server:
    """FedAdam of Reddi et al. (2021), without bias correction; `tau` is the degree of adaptivity."""
    return _adaptive("adam", lr, beta_1, beta_2, tau, lambda v, square: beta_2 * v + (1 - beta_2) * square)


def yogi(lr: float = 0.01, beta_1: float = 0.9, beta_2: float = 0.99, tau: float = 1e-3) -> Server:
    """FedYogi of Reddi et al. (2021)."""

    def second_moment(v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - beta_2) * square * torch.sign(v - square)

    return _adaptive("yogi", lr, beta_1, beta_2, tau, second_moment)


def _adaptive(
    name: str,
    lr: float,
    beta_1: float,
    beta_2: float,
    tau: float,
    second_moment: Callable[[Tensor, Tensor], Tensor],
) -> Server:
    _check("--server-lr", lr, 1e-30, float("inf"), "above 0")
    _check("beta_1", beta_1, 0, 1, "in [0, 1)")
    _check("beta_2", beta_2, 0, 1, "in [0, 1)")
    _check("tau", tau, 1e-30, float("inf"), "above 0")

    def advance(x: Tensor, move: Tensor, state: ServerState) -> tuple[Tensor, ServerState]:
        m = state["m"] if state else torch.zeros_like(move)
        v = state["v"] if state else torch.full_like(move, tau**2)
        m = beta_1 * m + (1 - beta_1) * move
        v = second_moment(v, move * move)
        return x + lr * m / (v.sqrt() + tau), {"m": m, "v": v}

    return Server(f"{name}(lr={lr:g})", advance=advance)


SERVERS: dict[str, Callable[..., Server]] = {"sgd": sgd, "adam": adam, "yogi": yogi}
