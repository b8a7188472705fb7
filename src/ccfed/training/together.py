"""The fast engine: all jobs of all federations advance in one batched step."""

import torch
from torch import Tensor

from ccfed.training import batches
from ccfed.training.engine import Jobs, Task, Trained
from ccfed.training.stepper import Stepper, make_stepper

# Batches of a round are dealt for so many jobs at once, and so many jobs are stepped side by side at most.
PIECE_BYTES = {"cpu": 256 * 2**20, "cuda": 8 * 2**30}


class Together:
    """Steps all jobs side by side, cut into pieces that fit in memory. Jobs that have made their steps leave the
    batch."""

    name = "together"

    def __init__(self, task: Task, tf32: bool = False) -> None:
        self.task = task
        self.stepper: Stepper = make_stepper(task, tf32)
        self.piece = 10**9  # jobs side by side; an out-of-memory error halves it

    def train(self, jobs: Jobs) -> Trained:
        """Makes every job's steps."""
        moves = jobs.models.new_zeros(len(jobs), jobs.models.shape[1])
        loss = jobs.models.new_zeros(len(jobs))
        # With the longest jobs first, those still at work are always the first so many of the piece.
        waiting = list(jobs.steps.argsort(descending=True, stable=True).split(min(self.piece, max(1, len(jobs)))))
        while waiting:
            these = waiting.pop(0)
            try:
                done = self._train_piece(jobs.take(these))
            except torch.OutOfMemoryError:
                if len(these) == 1:
                    raise
                torch.cuda.empty_cache()
                self.piece = -(-len(these) // 2)
                waiting = [half for part in (these, *waiting) for half in part.split(self.piece)]
                continue
            where = these.to(moves.device)
            moves[where], loss[where] = done.moves, done.loss
        return Trained(moves, loss)

    def _train_piece(self, jobs: Jobs) -> Trained:
        task = self.task
        start = jobs.models[jobs.model_of.to(task.device)]
        params = start.clone()
        steps = int(jobs.steps.max()) if len(jobs) else 0
        dealt = batches.plan(task.members, jobs.offset, jobs.size, jobs.key, jobs.first, steps, task.batch_size)
        loss = self.stepper.advance(params, jobs, dealt)
        return Trained(params - start, loss / jobs.steps.clamp(min=1).to(loss.device))

    @torch.no_grad()
    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy in percent and mean loss of each of `models` [M, parameters], many at once."""
        return self.stepper.evaluate(models)
