"""The fast engine: all jobs of all federations advance in one batched step."""

import copy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat

import torch
from torch import Tensor

from ccfed.training import batches
from ccfed.training.anymodule import AnyModule
from ccfed.training.chain import Chain
from ccfed.training.engine import Jobs, Precision, Task, Trained
from ccfed.training.layers import Layer, chain_of
from ccfed.training.stepping import Stepper

# On a processor, so many jobs side by side: enough to hide the cost of a call, few enough to stay in its cache.
JOBS_IN_CACHE = 10


class Together:
    """Steps jobs side by side, in pieces that fit in memory; jobs that have made their steps leave the batch.

    On a processor each core steps pieces of its own: that beats sharing out every matrix product among the cores.
    """

    name = "together"

    def __init__(self, task: Task, precision: Precision = "float32") -> None:
        self.task = task
        self.on_cpu = task.device.type == "cpu"
        self.cores = torch.get_num_threads() if self.on_cpu else 1
        self.steppers = [make_stepper(_own_copy(task) if i else task, precision) for i in range(self.cores)]
        self.piece = JOBS_IN_CACHE if self.on_cpu else 2**30
        self.how = self.steppers[0].name

    def train(self, jobs: Jobs) -> Trained:
        """Makes every job's steps."""
        done = Trained(jobs.models.new_zeros(len(jobs), jobs.models.shape[1]), jobs.models.new_zeros(len(jobs)))
        if len(jobs) == 0:
            return done
        # With the longest jobs first, those still at work are always the first so many of a piece.
        order = jobs.steps.argsort(descending=True, stable=True)
        if self.cores == 1:
            self._train_pieces(self.steppers[0], jobs, list(order.split(self.piece)), done)
            return done
        pieces = list(order.split(min(self.piece, -(-len(jobs) // self.cores))))
        shares = [pieces[i :: self.cores] for i in range(self.cores)]
        threads = torch.get_num_threads()
        try:
            with ThreadPoolExecutor(self.cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                list(pool.map(self._train_pieces, self.steppers, repeat(jobs), shares, repeat(done)))
        finally:
            torch.set_num_threads(threads)
        return done

    def _train_pieces(self, stepper: Stepper, jobs: Jobs, waiting: list[Tensor], done: Trained) -> None:
        while waiting:
            these = waiting.pop(0)
            try:
                moves, loss = self._train_piece(stepper, jobs.take(these))
            except torch.OutOfMemoryError:
                if len(these) == 1:
                    raise
                torch.cuda.empty_cache()
                self.piece = -(-len(these) // 2)
                waiting = [half for part in (these, *waiting) for half in part.split(self.piece)]
                continue
            where = these.to(moves.device)
            done.moves[where], done.loss[where] = moves, loss

    def _train_piece(self, stepper: Stepper, jobs: Jobs) -> tuple[Tensor, Tensor]:
        task = self.task
        params = jobs.models[jobs.model_of.to(task.device)]
        dealt = batches.plan(
            task.members, jobs.offset, jobs.size, jobs.key, jobs.first, int(jobs.steps.max()), task.batch_size
        )
        loss = stepper.advance(params, jobs, dealt)
        params -= jobs.models[jobs.model_of.to(task.device)]
        return params, loss / jobs.steps.clamp(min=1).to(loss.device)

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy in percent and mean loss on the test samples of each of `models` [M, parameters], many at once."""
        with torch.no_grad():
            return self.steppers[0].evaluate(models)


def make_stepper(task: Task, precision: Precision = "float32") -> Stepper:
    """The fastest stepper that can run the task's network: by hand for chains of common layers, else by vmap."""
    layers = chain_of(task.network.module)
    if layers is not None and task.device.type == "cpu" and _fits(task, layers):
        return Chain(task, layers)
    return AnyModule(task)


def _fits(task: Task, layers: list[Layer]) -> bool:
    """Whether the layers, which are chosen by type, also take samples of this shape."""
    views = task.network.views(torch.zeros(1, task.network.size, device=task.device, dtype=task.dtype))
    x = task.inputs.prepare(task.train_x[:2], task.dtype)[None]
    try:
        for layer in layers:
            x, _ = layer.forward(views, x, None)
    except NotImplementedError:
        return False
    return x.dim() == 3


def _own_copy(task: Task) -> Task:
    """The task with a module of its own: functional calls on one module from two threads would meet."""
    return replace(task, network=replace(task.network, module=copy.deepcopy(task.network.module)))
