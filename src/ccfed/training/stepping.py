"""What all ways of stepping many jobs at once share: the batch of a step, who is still at work, the test, memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ccfed.training import batches
from ccfed.training.batches import BatchPlan
from ccfed.training.engine import Jobs, Task

EVALUATED_AT_ONCE = 500
"""So many test samples of one model stay near a processor's cache. There models are tested one by one: products of
other shapes may round otherwise, and a model's loss must not depend on how many are tested beside it."""
EVALUATION_BYTES = 2**32
"""About as much memory as an evaluation may take on a GPU for what its layers compute."""


class Stepper(Protocol):
    """Makes the steps of J jobs side by side."""

    name: str

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """Makes all steps of all `jobs` (longest first) on `params` [J, parameters], in place; returns the sum of the
        losses of each job's steps [J]."""

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy in percent and mean loss of each of `models` [M, parameters]: two float64 [M] on the host."""

    def bytes_for_a_job(self, steps: int) -> int:
        """About how much device memory each further job of `steps` steps takes, parameters and batches included."""

    def release(self) -> None:
        """Gives back the memory that is kept from one call of `advance` to the next."""


def inputs_of_step(task: Task, jobs: Jobs, dealt: BatchPlan, k: int, active: int) -> tuple[Tensor, Tensor, Tensor]:
    """The batches of step k of the first `active` jobs: inputs [A, B, ...], labels [A, B] and which slots are
    filled."""
    chosen = dealt.samples[:active, k]
    key = batches.augment_key(jobs.key[:active], jobs.first[:active] + k) if task.inputs.augments else None
    return inputs_of(task, chosen, key)


def inputs_of(task: Task, chosen: Tensor, key: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The samples `chosen` [..., B] (-1: none) as the model's inputs [..., B, *sample], cropped and flipped by the
    streams `key` [...], with their labels and which slots are filled."""
    filled = chosen >= 0
    rows = chosen.clamp(min=0).to(torch.int64)
    # Row by row: many times faster on a processor than general indexing.
    stored = task.train_x.index_select(0, rows.flatten()).view(*rows.shape, *task.sample_shape)
    if key is not None:
        stored = task.inputs.crop_and_flip(stored, key)
    return task.inputs.prepare(stored, task.dtype), task.train_y[rows], filled


def at_work(steps: Tensor) -> Iterator[tuple[int, int]]:
    """(k, how many of the jobs make a step k) for each step; `steps` int64 [J], descending."""
    counts = steps.tolist()
    active = len(counts)
    for k in range(counts[0] if counts else 0):
        while counts[active - 1] <= k:
            active -= 1
        yield k, active


@dataclass(frozen=True)
class Values:
    """How many numbers a network's layers give for one sample: `all` of them, and the `widest` layer."""

    all: int
    widest: int


def values_per_sample(task: Task) -> Values:
    """What a step must keep in memory for each sample, and what a test must."""
    counts = [task.train_x[0].numel()]

    def count(module: nn.Module, inputs: object, output: object) -> None:
        counts.append(output.numel() // 2 if isinstance(output, Tensor) else 0)

    module = task.network.module
    hooks = [part.register_forward_hook(count) for part in module.modules() if not any(True for _ in part.children())]
    was_training = module.training
    try:
        with torch.no_grad():
            module.eval()(task.inputs.prepare(task.train_x[[0, 0]], task.dtype))  # BatchNorm wants two
    finally:
        module.train(was_training)
        for hook in hooks:
            hook.remove()
    return Values(sum(counts), max(counts))


def evaluate_in_pieces(
    task: Task,
    models: Tensor,
    scores_of: Callable[[Tensor, Tensor], Tensor],
    values: Values | None = None,
    prepared: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Accuracy in percent and mean loss, with `scores_of(some, x)` giving [m, b, classes] for some of `models` and a
    piece x of the test samples. `values` bounds the memory of a piece on a GPU; `prepared` are all test samples as the
    model's inputs, if they are there already."""
    count = len(task.test_y)
    # A layer's input and output, and as much again for what is between them.
    together = 2**62 if values is None else max(1, EVALUATION_BYTES // (4 * values.widest * task.dtype.itemsize))
    if task.device.type == "cpu":
        at_once, beside = EVALUATED_AT_ONCE, 1
    else:
        at_once = min(count, together)
        beside = max(1, min(len(models), together // at_once))
    right, loss = [], []
    for some in models.split(beside):
        right_here = torch.zeros(len(some), dtype=torch.int64, device=task.device)
        loss_here = torch.zeros(len(some), dtype=torch.float64, device=task.device)
        samples = task.test_x if prepared is None else prepared
        for x, y in zip(samples.split(at_once), task.test_y.split(at_once), strict=True):
            scores = scores_of(some, task.inputs.prepare(x, task.dtype) if prepared is None else x)
            right_here += (scores.argmax(-1) == y).sum(-1)
            each = F.cross_entropy(scores.flatten(0, 1), y.repeat(len(some)), reduction="none")
            loss_here += each.view(len(some), -1).sum(-1, dtype=torch.float64)
        right.append(right_here)
        loss.append(loss_here)
    # One copy to the host, at the end.
    found = torch.stack([100 * torch.cat(right).to(torch.float64), torch.cat(loss)]).cpu() / count
    return found[0], found[1]
