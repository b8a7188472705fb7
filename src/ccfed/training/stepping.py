"""What all ways of stepping many jobs at once share: the batch of a step, who is still at work, the test."""

from collections.abc import Callable, Iterator
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ccfed.training import batches
from ccfed.training.batches import BatchPlan
from ccfed.training.engine import Jobs, Task

EVALUATED_AT_ONCE = 2000


class Stepper(Protocol):
    """Makes the steps of J jobs side by side."""

    name: str

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """Makes all steps of all `jobs` (longest first) on `params` [J, parameters], in place; returns the sum of the
        losses of each job's steps [J]."""

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy in percent and mean loss of each of `models` [M, parameters]: two float64 [M] on the host."""


def inputs_of_step(task: Task, jobs: Jobs, dealt: BatchPlan, k: int, active: int) -> tuple[Tensor, Tensor, Tensor]:
    """The batches of step k of the first `active` jobs: inputs [A, B, ...], labels [A, B] and which slots are
    filled."""
    chosen = dealt.samples[:active, k]
    filled = chosen >= 0
    rows = chosen.clamp(min=0).to(torch.int64)
    stored = task.train_x[rows]
    if task.inputs.augments:
        key = batches.augment_key(jobs.key[:active], jobs.first[:active] + k)
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


def evaluate_in_pieces(task: Task, models: int, scores_of: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Accuracy in percent and mean loss, with `scores_of(x)` giving [M, b, classes] for a piece x of the test
    samples."""
    count = len(task.test_y)
    right = torch.zeros(models, dtype=torch.int64, device=task.device)
    loss = torch.zeros(models, dtype=torch.float64, device=task.device)
    for x, y in zip(task.test_x.split(EVALUATED_AT_ONCE), task.test_y.split(EVALUATED_AT_ONCE), strict=True):
        scores = scores_of(task.inputs.prepare(x, task.dtype))
        right += (scores.argmax(-1) == y).sum(-1)
        each = F.cross_entropy(scores.flatten(0, 1), y.repeat(models), reduction="none")
        loss += each.view(models, -1).sum(-1, dtype=torch.float64)
    return 100 * right.cpu().to(torch.float64) / count, (loss / count).cpu()
