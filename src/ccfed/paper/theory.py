"""The bound put to the test: a non-convex problem whose constants are known, on the algorithm's own rounds."""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccfed.algorithm import Method, methods, play, start, streams
from ccfed.algorithm.budgets import groups
from ccfed.paper.bound import Problem, corollary_rate, largest_rate, theorem_1
from ccfed.paper.drawing.theory import draw_slopes
from ccfed.paper.plan import Plan
from ccfed.paper.store import Store

SIZE = 10  # coordinates
COPIES = 32  # independent repetitions, side by side in one vector
ROUNDS = (512, 1024, 2048, 4096)
SETTING = Problem(N=4, K=2, T=1, r=0.5, W=3, L=1.0, sigma_l=2.0, sigma_g=1.0)


@dataclass(frozen=True)
class Landscape:
    """f_i(x) = sum_j x_j^2 / (1 + x_j^2) + a_ij sin(x_j), where the rows of `a` [N, coordinates] add up to nothing.

    The mean f is the first sum: not convex, at least 0, and 0 at x = 0. grad f_i is at most |a_i| away from grad f, and
    f_i is smooth with 2 + max |a_ij|, since the second derivative of z^2 / (1 + z^2) lies in [-1/2, 2].
    """

    a: Tensor

    @classmethod
    def of(cls, problem: Problem) -> "Landscape":
        """Draws a landscape whose clients' gradients are at most `problem.sigma_g` apart from their mean."""
        draws = streams.normal(streams.stream(0, "landscape"), torch.arange(problem.N * SIZE)).view(problem.N, SIZE)
        draws = draws - draws.mean(0)
        return cls(draws * (problem.sigma_g / draws.norm(dim=1).max()))

    @property
    def smoothness(self) -> float:
        """L, for every f_i and so for f."""
        return 2 + float(self.a.abs().max())

    def value(self, x: Tensor) -> Tensor:
        """f of each row of `x` [copies, coordinates]: [copies]."""
        return (x * x / (1 + x * x)).sum(-1)

    def gradient(self, x: Tensor) -> Tensor:
        """grad f at each row of `x` [..., coordinates]."""
        return 2 * x / (1 + x * x) ** 2

    def gradients(self, x: Tensor, clients: Tensor) -> Tensor:
        """grad f_i for each of `clients` (int64 [C]) at its own x [C, copies, coordinates]."""
        return self.gradient(x) + self.a[clients][:, None] * torch.cos(x)


def squared_gradients(problem: Problem, method: Method, land: Landscape, rate: float) -> np.ndarray:
    """||grad f(x_t)||^2 after each round, its mean over COPIES repetitions: float64 [T]. x_0 is all ones."""
    x = torch.ones(COPIES, SIZE, dtype=torch.float64)
    state = start(method, x.flatten(), problem.N)
    everyone = torch.arange(problem.N)
    scale = problem.sigma_l / SIZE**0.5
    counter = torch.arange(COPIES * SIZE)
    out = np.empty(problem.T)
    for t in range(problem.T):
        out[t] = float((land.gradient(state.model.view(COPIES, SIZE)) ** 2).sum(-1).mean())
        playing = play(state, method, everyone, steps=problem.K, rounds=problem.T)
        work = next(playing)
        here = state.model.view(1, COPIES, SIZE)
        local = here.repeat(len(work.clients), 1, 1)
        for k in range(problem.K):
            key = streams.fold(streams.stream(0, "noise", t, k), work.clients)
            noise = streams.normal(key[:, None], counter).view(-1, COPIES, SIZE)
            local = local - rate * (land.gradients(local, work.clients) + scale * noise)
        try:
            playing.send((local - here).flatten(1))
        except StopIteration:
            continue
    return out


@cache
def measured() -> tuple[dict[str, Any], ...]:
    """One row a method and T: the learning rate, the least mean squared gradient norm, and the bound on it."""
    land = Landscape.of(SETTING)
    gap = float(land.value(torch.ones(1, SIZE, dtype=torch.float64)))
    rows = []
    p = groups(SETTING.N, SETTING.r, SETTING.W)
    for name, method, W in (
        ("FedAvg (full)", methods.fedavg(), 1),
        ("CC-FedAvg", methods.cc_fedavg(p, "round-robin"), SETTING.W),
    ):
        for rounds in ROUNDS:
            # Both at the rate that CC-FedAvg may have, so that only the method differs.
            slower = replace(SETTING, T=rounds, L=land.smoothness, gap=gap)
            rate = min(corollary_rate(slower), largest_rate(slower))
            least = float(squared_gradients(slower, method, land, rate).min())
            bound = theorem_1(replace(slower, W=W, r=0.0 if W == 1 else SETTING.r), rate).total
            rows.append({"method": name, "T": rounds, "lr": rate, "measured": least, "bound": bound})
    return tuple(rows)


def slope(method: str) -> float:
    """The slope of log(measured) over log(T) of a method, by least squares."""
    mine = [row for row in measured() if row["method"] == method]
    return float(np.polyfit(np.log([row["T"] for row in mine]), np.log([row["measured"] for row in mine]), 1)[0])


def theory() -> Plan:
    """The measured least gradient norm under the bound, over T, for FedAvg and CC-FedAvg."""
    return Plan(
        name="theory",
        title="A non-convex problem with known constants: least mean squared gradient norm, and the bound on it",
        entries=(),
        draw=lambda plan, store: draw_slopes(measured()),
        table=table,
        csv_rows=lambda plan, store: [dict(row) for row in measured()],
        notes=(
            f"{SETTING.N} clients, K = {SETTING.K}, r = {SETTING.r:g}, W = {SETTING.W}, round-robin,"
            f" sigma_l = {SETTING.sigma_l:g}, sigma_g = {SETTING.sigma_g:g}; means over {COPIES} repetitions.",
            "The bound has the form of the paper's Theorem 1; its constants are this project's, proved in"
            " docs/theory.md.",
        ),
    )


def table(plan: Plan, store: Store) -> str:
    """The rows as Markdown, and the slopes."""
    lines = ["| method | T | learning rate | measured | bound |", "|---|---:|---:|---:|---:|"]
    for row in measured():
        values = f"{row['lr']:.4g} | {row['measured']:.4g} | {row['bound']:.4g}"
        lines.append(f"| {row['method']} | {row['T']} | {values} |")
    slopes = "; ".join(f"{name} {slope(name):.2f}" for name in ("FedAvg (full)", "CC-FedAvg"))
    return "\n".join(lines) + f"\n\nSlope of log(measured) over log(T): {slopes}."
