"""The reference engine: plain PyTorch, one client after another, one step after another. It names the client that
fails."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ccfed.training import batches
from ccfed.training.dropout import StreamedDropout
from ccfed.training.engine import JobFailed, Jobs, Precision, Task, Trained
from ccfed.training.multiplying import multiplying

EVALUATED_AT_ONCE = 2000


class OneByOne:
    """An engine that anyone can read: for each job, load x_t, make its steps of SGD, return x_K - x_t."""

    name = "one-by-one"

    def __init__(self, task: Task, precision: Precision = "float32") -> None:
        self.task, self.precision = task, precision
        self.module = task.network.module.to(task.device, task.dtype)
        self.flat = torch.zeros(task.network.size, device=task.device, dtype=task.dtype)
        # The module's parameters become views of one vector, so that x_t goes in and x_K comes out in one copy.
        views = task.network.views(self.flat)
        for name, parameter in self.module.named_parameters():
            if name in views:
                parameter.data = views[name]
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]

    def train(self, jobs: Jobs) -> Trained:
        """Makes every job's steps, in order. JobFailed names the one whose training raised an exception."""
        moves = jobs.models.new_zeros(len(jobs), jobs.models.shape[1])
        loss = jobs.models.new_zeros(len(jobs))
        with multiplying(self.task.device, self.precision):
            for j in range(len(jobs)):
                try:
                    moves[j], loss[j] = self._train_one(jobs.take(torch.tensor([j])))
                except Exception as error:  # whatever a model may raise
                    raise JobFailed(j, error) from error
        return Trained(moves, loss)

    def _train_one(self, job: Jobs) -> tuple[Tensor, Tensor]:
        task, steps = self.task, int(job.steps)
        start = job.models[int(job.model_of)]
        self.flat.copy_(start)
        self.module.train()
        optimiser = torch.optim.SGD(self.parameters, lr=float(job.lr))
        dealt = batches.plan(task.members, job.offset, job.size, job.key, job.first, steps, task.batch_size)
        filled = dealt.filled[0].tolist()
        total = start.new_zeros(())
        every_step = job.first + torch.arange(steps)
        crop_keys = batches.augment_key(job.key, every_step)
        dropout_keys = batches.dropout_key(job.key, every_step).to(task.device)
        for k in range(steps):
            chosen = dealt.samples[0, k, : filled[k]].to(torch.int64)
            x = task.inputs.crop_and_flip(task.train_x[chosen], crop_keys[k])
            with StreamedDropout(dropout_keys[k]):
                scores = self.module(task.inputs.prepare(x, task.dtype))
            loss = F.cross_entropy(scores, task.train_y[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += loss.detach()
        return self.flat - start, total / max(steps, 1)

    @torch.no_grad()
    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy in percent and mean loss of each of `models` [M, parameters], one after another."""
        with multiplying(self.task.device, self.precision):
            return self._evaluate(models)

    def _evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        task = self.task
        self.module.eval()
        count = len(task.test_y)
        accuracy = torch.zeros(len(models), dtype=torch.float64)
        mean_loss = torch.zeros(len(models), dtype=torch.float64)
        for m, model in enumerate(models):
            self.flat.copy_(model)
            right, loss = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.float64)
            for x, y in zip(task.test_x.split(EVALUATED_AT_ONCE), task.test_y.split(EVALUATED_AT_ONCE), strict=True):
                scores = self.module(task.inputs.prepare(x, task.dtype))
                right += (scores.argmax(1) == y).sum().cpu()
                loss += F.cross_entropy(scores, y, reduction="sum").to(torch.float64).cpu()
            accuracy[m], mean_loss[m] = 100 * right.to(torch.float64) / count, loss / count
        return accuracy, mean_loss
