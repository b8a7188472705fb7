"""Every method of the paper as four choices: who trains, what a skipper contributes, how much work, how the server
moves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from ccfed.algorithm import budgets, estimators
from ccfed.algorithm import server as servers
from ccfed.algorithm.estimators import Estimator, View, as_estimator
from ccfed.algorithm.history import Keep
from ccfed.algorithm.schedules import Schedule, as_schedule
from ccfed.algorithm.server import Server

Budgets = Sequence[float] | Tensor
Work = Callable[[Tensor, int], Tensor]


def full_work(p: Tensor, steps: int) -> Tensor:
    """Everyone who trains makes all K `steps`: int64, the shape of `p`."""
    return torch.full(p.shape, steps, dtype=torch.int64)


def partial_work(p: Tensor, steps: int) -> Tensor:
    """Client i makes int(p_i K) steps, at least one: int64, the shape of `p`."""
    return (p * steps + 1e-9).to(torch.int64).clamp(min=1)


@dataclass(frozen=True, eq=False)
class Method:
    """A federated method. `p` is float64 [clients], or None where nobody ever skips (p_i = 1 for all).

    `speaks_for`: whose estimates enter the mean, those of the selected clients or of everyone with a past (MIFA).
    A schedule may be given by its name, an estimator as a plain function, and `p` as a list.
    `keep` and `on_server` say where pasts are kept (Algorithms 1, 2 and 3). Change one choice with `method.but(...)`.
    """

    name: str
    p: Tensor | None
    schedule: Schedule
    estimator: Estimator
    work: Work = full_work
    server: Server = field(default_factory=servers.averaging)
    keep: Keep = "client"
    on_server: tuple[int, ...] | None = None
    speaks_for: Literal["selected", "everyone"] = "selected"

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedule", as_schedule(self.schedule))
        object.__setattr__(self, "estimator", as_estimator(self.estimator))
        if self.p is not None:
            object.__setattr__(self, "p", budgets.explicit(self.p))
        if self.speaks_for not in ("selected", "everyone"):
            raise ValueError(f"speaks_for is {self.speaks_for!r}, but it must be 'selected' or 'everyone'")

    def but(self, **choices: object) -> "Method":
        """This method with other choices: `cc_fedavg(p).but(name="adam", server=server.adam())`."""
        return replace(self, **choices)  # type: ignore[arg-type]

    def budget(self, clients: Tensor) -> Tensor:
        """p_i of `clients` (int64 [C]): float64 [C]."""
        return torch.ones(len(clients), dtype=torch.float64) if self.p is None else self.p[clients]


def _method(
    name: str,
    p: Budgets | None,
    schedule: Schedule | str,
    estimator: Estimator | Callable[[View], Tensor | None],
    **choices: object,
) -> Method:
    checked = None if p is None else budgets.explicit(p)
    return Method(name, checked, as_schedule(schedule), as_estimator(estimator), **choices)  # type: ignore[arg-type]


def fedavg() -> Method:
    """FedAvg (full): everyone trains in every round, whatever it costs."""
    return _method("fedavg", None, "always", estimators.nothing())


def dropout(p: Budgets) -> Method:
    """FedAvg (dropout): client i trains while t < p_i T, and is gone when its budget is spent."""
    return _method("dropout", p, "quota", estimators.nothing())


def strategy_1(p: Budgets, schedule: Schedule | str = "ad-hoc") -> Method:
    """Strategy 1: a skipper stays out of the round."""
    return _method("strategy-1", p, schedule, estimators.nothing())


def strategy_2(p: Budgets, schedule: Schedule | str = "ad-hoc", keep: Keep = "client") -> Method:
    """Strategy 2: a skipper returns the local model of its last training."""
    return _method("strategy-2", p, schedule, estimators.last_model(), keep=keep)


def cc_fedavg(
    p: Budgets,
    schedule: Schedule | str = "ad-hoc",
    estimator: Estimator | Callable[[View], Tensor | None] | None = None,
    keep: Keep = "client",
    name: str = "cc-fedavg",
) -> Method:
    """CC-FedAvg (Strategy 3): a skipper repeats the move of its last training, or what `estimator` makes of its
    past."""
    return _method(name, p, schedule, estimator or estimators.last_move(), keep=keep)


def cc_fedavg_c(p: Budgets, tau: int = 100, schedule: Schedule | str = "ad-hoc", keep: Keep = "client") -> Method:
    """CC-FedAvg(c): Strategy 3 while t < tau, Strategy 2 from then on."""
    return _method("cc-fedavg-c", p, schedule, estimators.last_move_then_last_model(tau), keep=keep)


def fednova(p: Budgets) -> Method:
    """FedNova (Wang et al., 2020): p_i K steps each, and moves normalised by their number of steps."""
    return _method(
        "fednova", p, "always", estimators.nothing(), work=partial_work, server=servers.normalised_averaging()
    )


def fednova_plain(p: Budgets) -> Method:
    """FedNova as the paper's authors ran it: p_i K steps each, and a plain mean of the models."""
    return _method("fednova-plain", p, "always", estimators.nothing(), work=partial_work)


def fedopt(p: Budgets, server: Server | None = None, keep: Keep = "client") -> Method:
    """FedOpt: all skip and train together, and a `server` optimiser makes the step (by default SGD at rate 1)."""
    server = server or servers.sgd()
    return _method("fedopt", p, "synchronised", estimators.last_move(), server=server, keep=keep)


def mifa(p: Budgets, schedule: Schedule | str = "ad-hoc", keep: Keep = "server") -> Method:
    """MIFA (Gu et al., 2021): p_i is availability, and the last moves of all clients count, selected or not."""
    return _method("mifa", p, schedule, estimators.last_move(), keep=keep, speaks_for="everyone")


METHODS: dict[str, Callable[..., Method]] = {
    "fedavg": fedavg,
    "dropout": dropout,
    "strategy-1": strategy_1,
    "strategy-2": strategy_2,
    "cc-fedavg": cc_fedavg,
    "cc-fedavg-c": cc_fedavg_c,
    "fednova": fednova,
    "fednova-plain": fednova_plain,
    "fedopt": fedopt,
    "mifa": mifa,
}
