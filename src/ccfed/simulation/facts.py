"""What a report later wants to know of a federation and its model: who holds what, and what one step costs."""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.flop_counter import FlopCounterMode

from ccfed.data import Federation
from ccfed.models.network import Network
from ccfed.simulation.experiment import Experiment

COUNTED_CELLS = 10**8


def facts_of(experiments: Sequence[Experiment], network: Network) -> list[dict[str, NDArray[Any]]]:
    """The contents of federation.npz for each of `experiments`, which share data set, `network` and batch size.

    `p` [clients]: the budgets; `parameters`: the length of the model's vector; `step_flops`: see `step_flops`;
    `classes`: the names of the labels; `counts` [clients, classes]: samples of each class at each client (left out of
    federations with more than 10^8 such numbers).
    """
    data = experiments[0].federation.data
    samples = data.inputs.prepare(data.train_x[[0, 0]].cpu(), network.flat().dtype)  # BatchNorm wants two
    shared = {
        "parameters": np.array(network.size),
        "step_flops": np.array(step_flops(network.module, samples, experiments[0].batch_size)),
        "classes": np.array(data.classes, dtype=np.str_),
    }
    federations = {id(e.federation.parts): e.federation for e in experiments}  # methods of one seed share theirs
    held = {
        key: {"counts": counts_of(federation)}
        for key, federation in federations.items()
        if federation.clients * len(data.classes) <= COUNTED_CELLS
    }
    return [{**shared, "p": _budgets(e), **held.get(id(e.federation.parts), {})} for e in experiments]


def _budgets(experiment: Experiment) -> NDArray[np.float64]:
    return experiment.method.budget(torch.arange(experiment.federation.clients)).numpy()


def counts_of(federation: Federation) -> NDArray[Any]:
    """Samples of each class at each client: [clients, classes], in the smallest unsigned integers that hold them."""
    counts = federation.describe().counts.numpy()
    return counts.astype(np.min_scalar_type(int(counts.max())))


def step_flops(module: torch.nn.Module, samples: torch.Tensor, batch_size: int) -> int:
    """Floating-point operations of one step of SGD: `batch_size` times those of one of the `samples` [n, *sample
    shape], forwards and backwards, counting matrix products and convolutions (a multiplication with its addition is
    two)."""
    model = copy.deepcopy(module).cpu().eval()
    with torch.random.fork_rng(devices=[]), FlopCounterMode(display=False) as counter:
        model(samples).sum().backward()
    return int(counter.get_total_flops()) * batch_size // len(samples)
