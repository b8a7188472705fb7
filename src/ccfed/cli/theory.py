"""`ccfed theory`: what the convergence bound says for given constants."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ccfed.cli.failures import bad_input
from ccfed.cli.options import read_options
from ccfed.paper.bound import Problem, corollary_rate, largest_rate, rounds_needed, theorem_1


@dataclass(frozen=True)
class TheoryOptions:
    """The largest permitted learning rate, and the bound on the least mean squared gradient norm with its terms.

    The bound has the form of the paper's Theorem 1 and Corollary 1; docs/theory.md proves it with its constants.
    """

    N: int = 8
    """Number of clients."""
    K: int = 300
    """Local steps of a round."""
    T: int = 400
    """Rounds."""
    r: float = 0.5
    """Share of clients that train one round in W."""
    W: int = 4
    """Those clients train one round in W, the others in every round."""
    L: float = 1.0
    """Smoothness of every client's objective."""
    sigma_l: float = 1.0
    """Standard deviation of a client's stochastic gradient."""
    sigma_g: float = 1.0
    """How far a client's gradient may be from the mean of all."""
    gap: float = 1.0
    """f(x_0) minus the least value of f."""
    lr: float | None = None
    """Learning rate of Theorem 1 (default: the largest that is permitted)."""


def main(arguments: Sequence[str]) -> int:
    """Runs `ccfed theory ARGUMENTS`."""
    o = read_options(TheoryOptions, arguments, "ccfed theory")
    with bad_input():
        problem = Problem(o.N, o.K, o.T, o.r, o.W, o.L, o.sigma_l, o.sigma_g, o.gap)
        most = largest_rate(problem)
        rate = most if o.lr is None else o.lr
        bound = theorem_1(problem, rate)
    print(f"largest permitted learning rate  {most:.6g}")
    print(f"\nTheorem 1 at learning rate {rate:.6g}")
    _print(bound.terms(), bound.total)
    better = corollary_rate(problem)
    print(f"\nCorollary 1 at learning rate sqrt(N / (K T)) / L = {better:.6g}")
    if math.nextafter(most, math.inf) < better:
        print(f"  needs at least {rounds_needed(problem):,} rounds: with {o.T:,} this learning rate is too large")
    else:
        corollary = theorem_1(problem, better)
        _print(corollary.terms(), corollary.total)
    return 0


MEANING = {
    "start": "how far the start is from the best",
    "drift": "local steps that lead away from each other",
    "noise": "noise of the mean move",
    "delay": "old moves that are repeated",
}


def _print(terms: dict[str, float], total: float) -> None:
    for name, value in terms.items():
        print(f"  {name:<6} {value:>12.6g}  {MEANING[name]}")
    print(f"  {'bound':<6} {total:>12.6g}  on the least mean squared gradient norm of the T rounds")


__all__ = ["TheoryOptions", "main"]
