"""`ccfed theory`: what the convergence bound says for given constants."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ccfed.cli.failures import bad_input
from ccfed.cli.options import read_options
from ccfed.paper.bound import Bound, Problem, corollary_rate, largest_rate, rounds_needed, theorem_1


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
        try:
            print("\n".join(described(Problem(o.N, o.K, o.T, o.r, o.W, o.L, o.sigma_l, o.sigma_g, o.gap), o.lr)))
        except ArithmeticError as error:
            raise ValueError(
                "these constants are too large or too small to compute with: the bound is no number"
            ) from error
    return 0


def described(problem: Problem, lr: float | None) -> list[str]:
    """The lines that say what the theorem (at `lr`, or at the largest rate) and its corollary give. ArithmeticError if
    that is beyond the range of a float."""
    most = largest_rate(problem)
    rate = most if lr is None else lr
    lines = [f"largest permitted learning rate  {most:.6g}", "", f"Theorem 1 at learning rate {rate:.6g}"]
    lines += _terms(theorem_1(problem, rate))
    better = corollary_rate(problem)
    lines += ["", f"Corollary 1 at learning rate sqrt(N / (K T)) / L = {better:.6g}"]
    if better > most * (1 + 1e-12):
        needed = rounds_needed(problem)
        lines.append(f"  needs at least {needed:,} rounds: with {problem.T:,} this learning rate is too large")
    else:
        lines += _terms(theorem_1(problem, better))
    return lines


MEANING = {
    "start": "how far the start is from the best",
    "drift": "local steps that lead away from each other",
    "noise": "noise of the mean move",
    "delay": "old moves that are repeated",
}


def _terms(bound: Bound) -> list[str]:
    if not math.isfinite(bound.total):
        raise OverflowError
    lines = [f"  {name:<6} {value:>12.6g}  {MEANING[name]}" for name, value in bound.terms().items()]
    return [*lines, f"  {'bound':<6} {bound.total:>12.6g}  on the least mean squared gradient norm of the T rounds"]


__all__ = ["TheoryOptions", "main"]
