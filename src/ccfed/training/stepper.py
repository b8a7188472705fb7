"""How a batch of jobs makes its steps: any module by `torch.func.vmap`, chains of common layers by hand."""

from collections.abc import Iterator
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from ccfed.training import batches
from ccfed.training.batches import BatchPlan
from ccfed.training.dropout import StreamedDropout
from ccfed.training.engine import Jobs, Task

EVALUATED_AT_ONCE = 2000


class Stepper(Protocol):
    """Makes the steps of J jobs side by side."""

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """Makes all steps of all `jobs` (longest first) on `params` [J, parameters], in place; returns the sum of the
        losses of each job's steps [J]."""

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy in percent and mean loss of each of `models` [M, parameters]: two float64 [M] on the host."""


def make_stepper(task: Task, tf32: bool = False) -> Stepper:
    """The fastest stepper that can run the task's network."""
    return AnyModule(task)


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


class AnyModule:
    """The general stepper: gradients of all jobs by vmap over the module's parameters."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.module = task.network.module.to(task.device, task.dtype)
        self.gradients = vmap(grad_and_value(self._loss), randomness="error")
        self.scores = vmap(self._scores, in_dims=(0, None))

    def _loss(self, params: dict[str, Tensor], x: Tensor, y: Tensor, weight: Tensor, key: Tensor) -> Tensor:
        with StreamedDropout(key):
            scores = functional_call(self.module, params, (x,))
        return (F.cross_entropy(scores, y, reduction="none") * weight).sum()

    def _scores(self, params: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(self.module, params, (x,))  # type: ignore[no-any-return]

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """One vmapped gradient a step, subtracted in place."""
        task = self.task
        self.module.train()
        total = params.new_zeros(len(params))
        lr = jobs.lr.to(params.device, params.dtype)
        for k, active in at_work(jobs.steps):
            x, y, filled = inputs_of_step(task, jobs, dealt, k, active)
            weight = filled.to(x.dtype if x.is_floating_point() else task.dtype) / filled.sum(1, keepdim=True)
            key = batches.dropout_key(jobs.key[:active], jobs.first[:active] + k).to(params.device)
            views = task.network.views(params[:active])
            gradients, loss = self.gradients(views, x, y, weight, key)
            for name, view in views.items():
                rate = lr[:active].view(-1, *(1 for _ in view.shape[1:]))
                view -= rate * gradients[name]
            total[:active] += loss
        return total

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """All models at once on pieces of the test samples."""
        task = self.task
        self.module.eval()
        views = task.network.views(models)
        return evaluate_in_pieces(task, len(models), lambda x: self.scores(views, x))


def at_work(steps: Tensor) -> Iterator[tuple[int, int]]:
    """(k, how many of the jobs make a step k) for each step; `steps` int64 [J], descending."""
    counts = steps.tolist()
    active = len(counts)
    for k in range(counts[0] if counts else 0):
        while counts[active - 1] <= k:
            active -= 1
        yield k, active


def evaluate_in_pieces(task: Task, models: int, scores_of) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
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
