"""A convergence bound for CC-FedAvg on smooth non-convex problems, of the form of Theorem 1 and Corollary 1.

The constants are this project's own; docs/theory.md proves them step by step.
"""

import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Problem:
    """What the bound depends on.

    `N` clients make `K` local steps in each of `T` rounds; a share `r` of them trains one round in `W` (the others in
    every round). Every f_i is `L`-smooth, its stochastic gradient has variance at most `sigma_l` squared, and its
    gradient is at most `sigma_g` away from that of the mean f. `gap` is f(x_0) minus the least value of f.
    """

    N: int
    K: int
    T: int
    r: float
    W: int
    L: float
    sigma_l: float
    sigma_g: float
    gap: float = 1.0

    def __post_init__(self) -> None:
        for name in ("N", "K", "T", "W"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}, but it must be at least 1")
        if not 0 <= self.r <= 1:
            raise ValueError(f"--r is {self.r}, but the share of clients must lie in [0, 1]")
        if not 0 < self.L < math.inf:
            raise ValueError(f"--L is {self.L}, but it must be a finite number above 0")
        for name in ("sigma_l", "sigma_g", "gap"):
            if not 0 <= getattr(self, name) < math.inf:
                option = name.replace("_", "-")
                raise ValueError(f"--{option} is {getattr(self, name)}, but it must be a finite number of at least 0")

    @property
    def delay(self) -> int:
        """The most rounds by which a repeated move is old: W - 1, or 0 if nobody skips."""
        return self.W - 1 if self.r > 0 else 0


@dataclass(frozen=True)
class Bound:
    """The bound on min_t E||grad f(x_t)||^2 and its terms at a learning rate."""

    start: float
    """4 gap / (eta K T): how far the start is from the best."""
    drift: float
    """8 eta^2 L^2 K (sigma_l^2 + 2 K sigma_g^2): local steps lead away from each other."""
    noise: float
    """4 eta L W sigma_l^2 / N: the noise of the mean move."""
    delay: float
    """(8 r K L^2 (W-1)^2 eta^2 + r L W (W-1) eta) sigma_l^2 / N: what repeating old moves adds."""

    @property
    def total(self) -> float:
        """The sum of the terms."""
        return self.start + self.drift + self.noise + self.delay

    def terms(self) -> dict[str, float]:
        """The terms by name."""
        return asdict(self)


def largest_rate(problem: Problem) -> float:
    """Theorem 1 holds for every learning rate up to this one (at least 1 / (4 L K W))."""
    D, r = problem.delay, problem.r
    W = D + 1
    # y = eta L K must fulfil y <= 1/4, y <= 1 / (4 sqrt(1 + r D)) and W y + 2 r D^2 y^2 <= 1/2.
    allowed = [1 / 4, 1 / (4 * math.sqrt(1 + r * D))]
    square = 2 * r * D * D
    allowed.append(1 / (W + math.sqrt(W * W + 2 * square)))  # the positive root, written without cancellation
    return min(allowed) / (problem.L * problem.K)


def theorem_1(problem: Problem, rate: float) -> Bound:
    """The bound at the learning rate `rate`, which must not exceed `largest_rate`."""
    most = largest_rate(problem)
    if not 0 < rate <= most * (1 + 1e-12):
        raise ValueError(f"--lr is {rate:g}, but Theorem 1 needs a learning rate above 0 and at most {most:.6g}")
    p, D, eta = problem, problem.delay, rate
    W = D + 1
    variance = p.sigma_l**2 / p.N
    return Bound(
        start=4 * p.gap / (eta * p.K * p.T),
        drift=8 * eta**2 * p.L**2 * p.K * (p.sigma_l**2 + 2 * p.K * p.sigma_g**2),
        noise=4 * eta * p.L * W * variance,
        delay=(8 * p.r * p.K * p.L**2 * D**2 * eta**2 + p.r * p.L * W * D * eta) * variance,
    )


def corollary_rate(problem: Problem) -> float:
    """Corollary 1's learning rate sqrt(N / (K T)) / L, with which the bound falls like 1 / sqrt(N K T)."""
    return math.sqrt(problem.N / (problem.K * problem.T)) / problem.L


def rounds_needed(problem: Problem) -> int:
    """The least T from which on Corollary 1's learning rate is small enough for Theorem 1."""
    return math.ceil(problem.N / (problem.K * (problem.L * largest_rate(problem)) ** 2) - 1e-9)
