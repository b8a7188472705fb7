"""Every table and figure of the CC-FedAvg paper: what to run, how to draw it, and what the paper says.

The names given here are those of the convergence bound; tables and figures are made by `ccfed reproduce`.
"""

from ccfed.paper.bound import Bound, Problem, corollary_rate, largest_rate, rounds_needed, theorem_1

__all__ = ["Bound", "Problem", "corollary_rate", "largest_rate", "rounds_needed", "theorem_1"]
