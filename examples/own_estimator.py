"""An estimator of one's own beside the paper's three strategies, on data that comes with the package.

The idea: a skipper repeats its last move, but trusts it less the further the global model has gone since. Run it with
`python examples/own_estimator.py`; `--rounds 20 --seeds 0` makes it short.
"""

from dataclasses import dataclass

import torch
import tyro
from torch import Tensor

import ccfed
from ccfed import budgets, data, methods


def trusting(view: ccfed.View) -> Tensor:
    """The last move, weighted by the cosine between it and the way the global model has gone since (0 at the least)."""
    gone = view.model - view.trained_from
    trust = torch.nn.functional.cosine_similarity(view.last_move, gone, dim=1).clamp(min=0)
    return trust[:, None] * view.last_move


@dataclass(frozen=True)
class Options:
    """How long to run, and how often."""

    rounds: int = 100
    """Rounds T."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds, separated by spaces."""
    out: str = "own_estimator.png"
    """Where to draw the curves."""


def main() -> None:
    """Compares the estimators and draws their curves."""
    options = tyro.cli(Options)
    federation = data.load("digits").split(data.mixed(iid=0.0), clients=8)
    p = budgets.levels(clients=8, beta=4)
    compared = [
        methods.fedavg(),
        methods.cc_fedavg(p),
        methods.cc_fedavg(p, estimator=trusting, name="trusting"),
        methods.strategy_1(p),
        methods.strategy_2(p),
    ]
    runs = ccfed.simulate(federation, compared, rounds=options.rounds, seeds=options.seeds)
    print(runs.table())
    runs.plot("accuracy", options.out)


if __name__ == "__main__":
    main()
