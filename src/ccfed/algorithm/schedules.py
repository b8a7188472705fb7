"""Who trains in round t: each schedule looks at a Moment and answers yes or no for every selected client."""

import difflib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ccfed.algorithm import streams

LOAD_SECONDS = 0.1
"""The shortest time over which a processor's load means something."""


@dataclass(frozen=True)
class Moment:
    """What a schedule may look at: round t of T, the selected `clients` (int64 [S]) and their `p` (float64 [S])."""

    round: int
    rounds: int
    clients: Tensor
    p: Tensor
    seed: int = 0


@dataclass(frozen=True)
class Schedule:
    """A rule `decide(moment) -> bool [S]`. `foreseeable`: the server can work it out without asking the device."""

    name: str
    decide: Callable[[Moment], Tensor]
    foreseeable: bool = True


def _due(t: int, p: Tensor) -> Tensor:
    """How many trainings are due before round t: ceil(t * p), forgiving the rounding of p = 1/3."""
    return torch.ceil(t * p * (1 - 1e-12))


def always() -> Schedule:
    """Everybody trains in every round."""
    return Schedule("always", lambda now: torch.ones(len(now.clients), dtype=torch.bool))


def round_robin() -> Schedule:
    """Client i trains in the rounds t with t mod (1/p_i) = 0; for other p_i, in evenly spread rounds from round 0
    on."""
    return Schedule("round-robin", lambda now: _due(now.round + 1, now.p) > _due(now.round, now.p))


def ad_hoc() -> Schedule:
    """Everyone trains in round 0; after that client i trains with probability p_i, drawn per client and round."""

    def decide(now: Moment) -> Tensor:
        if now.round == 0:
            return torch.ones(len(now.clients), dtype=torch.bool)
        return streams.uniform(streams.stream(now.seed, "ad-hoc", now.round), now.clients) < now.p

    return Schedule("ad-hoc", decide)


def quota() -> Schedule:
    """Client i trains while t < p_i T and never again: the dropout baseline."""
    return Schedule("quota", lambda now: now.round < _due(now.rounds, now.p))


def synchronised() -> Schedule:
    """All train together at the pace of the scarcest selected client: in the rounds t with t mod (1/min p) = 0."""

    def decide(now: Moment) -> Tensor:
        slowest = now.p.min()
        together = bool(_due(now.round + 1, slowest) > _due(now.round, slowest))
        return torch.full((len(now.clients),), together)

    return Schedule("synchronised", decide)


def live(decide: Callable[[int, int], bool]) -> Schedule:
    """The device decides at the moment: `decide(client, round)` says whether it trains."""

    def ask(now: Moment) -> Tensor:
        return torch.tensor([bool(decide(client, now.round)) for client in now.clients.tolist()], dtype=torch.bool)

    return Schedule("live", ask, foreseeable=False)


def device_can_train(battery_above: float = 0.3, cpu_below: float = 0.8) -> Callable[[int, int], bool]:
    """A reader of this device for `live`: True while it is plugged in or its battery is above `battery_above`,
    and its CPU load (0..1, since the last reading) is below `cpu_below`. A device without a battery counts as plugged
    in. Readings within a moment, such as those of simulated clients in one round, share one measurement of the load.
    """
    for option, value in (("battery_above", battery_above), ("cpu_below", cpu_below)):
        if not 0 <= value <= 1:
            raise ValueError(f"{option} is {value}, but it must lie in [0, 1]")

    measured, load = -math.inf, 0.0

    def read(client: int, round: int) -> bool:
        import psutil

        nonlocal measured, load
        if time.monotonic() - measured >= LOAD_SECONDS:
            # Over less than a moment a load is noise, so the first one is waited for.
            load = psutil.cpu_percent(interval=LOAD_SECONDS if measured == -math.inf else None)
            measured = time.monotonic()
        battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
        powered = battery is None or battery.power_plugged or battery.percent > 100 * battery_above
        return bool(powered and load < 100 * cpu_below)

    return read


SCHEDULES: dict[str, Callable[[], Schedule]] = {
    "always": always,
    "round-robin": round_robin,
    "ad-hoc": ad_hoc,
    "quota": quota,
    "synchronised": synchronised,
    "live": lambda: live(device_can_train()),
}


def as_schedule(rule: Schedule | str) -> Schedule:
    """The schedule of this name, such as "round-robin"; a Schedule stays as it is."""
    if isinstance(rule, Schedule):
        return rule
    if rule not in SCHEDULES:
        near = difflib.get_close_matches(str(rule), SCHEDULES, 1)
        hint = f"did you mean {near[0]!r}? It" if near else "it"
        raise ValueError(f"schedule is {rule!r}; {hint} must be a Schedule or one of {', '.join(SCHEDULES)}")
    return SCHEDULES[rule]()
