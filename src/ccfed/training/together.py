"""The fast engine: all jobs of all federations advance in one batched step."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import repeat

import torch
from torch import Tensor

from ccfed.training import batches
from ccfed.training.anymodule import AnyModule
from ccfed.training.captured import captured
from ccfed.training.chain import Chain
from ccfed.training.engine import Jobs, Precision, Task, Trained
from ccfed.training.fusedsteps import fused_steps
from ccfed.training.lanes import Lanes
from ccfed.training.layers import Layer, chain_of
from ccfed.training.mixing import mixes_samples
from ccfed.training.multiplying import multiplying
from ccfed.training.stepping import Stepper, values_per_sample
from ccfed.training.trying import why_not_beside

# On a processor, so many jobs side by side for each core if their batches stay in its cache: enough to hide what calls
# cost.
JOBS_AT_ONCE = 10
CACHE_BYTES = 2**21

# If that makes fewer jobs than this, a call takes so long that cores do better each with a job and a thread of its own.
FEW = 4


class Together:
    """Steps jobs side by side, in pieces that fit in memory; jobs that have made their steps leave the batch.

    On a processor the cores share the products of small networks: threads with jobs of their own would mostly wait for
    each other between the products, as Python runs one of them at a time; and never do more cores share them than there
    are jobs, so that no product is parted, which would round it otherwise. Of large networks each core steps jobs of
    its own; jobs that are fewer than cores get several each.
    """

    def __init__(self, task: Task, precision: Precision = "float32", stepper: Stepper | None = None) -> None:
        if mixes_samples(task):
            raise NotImplementedError(
                "its scores for a sample depend on the others of the batch, as with BatchNorm: use GroupNorm"
            )
        self.task, self.precision = task, precision
        self.on_cpu = task.device.type == "cpu"
        self.stepper = stepper or make_stepper(task, precision)
        self.beside = [self.stepper]
        self.piece = 2**30
        if self.on_cpu:
            cores = torch.get_num_threads()
            each = values_per_sample(task).all * task.batch_size * task.dtype.itemsize
            piece = max(1, min(JOBS_AT_ONCE, CACHE_BYTES // each))
            if piece < FEW and stepper is None:
                self.beside += [_beside(self.stepper, task) for _ in range(cores - 1)]
                self.piece = piece
            else:
                self.piece = cores * piece
        self.how = self.stepper.name
        self.name = "streams" if isinstance(self.stepper, Lanes) else "together"

    def train(self, jobs: Jobs) -> Trained:
        """Makes every job's steps."""
        done = Trained(jobs.models.new_zeros(len(jobs), jobs.models.shape[1]), jobs.models.new_zeros(len(jobs)))
        if len(jobs) == 0 or int(jobs.steps.max()) == 0:
            return done
        # With the longest jobs first, those still at work are always the first so many of a piece.
        order = jobs.steps.argsort(descending=True, stable=True)
        order = order[: int((jobs.steps > 0).sum())]
        piece, threads = self._piece_for(jobs), len(self.beside)
        if threads == 1:
            pieces = -(-len(order) // piece)
            self._train_pieces(self.stepper, jobs, list(order.split(-(-len(order) // pieces))), done)
            return done
        even = len(order) - len(order) % (threads * piece)
        if even:
            self._train_beside(jobs, list(order[:even].split(piece)), done)
        if parts := min(threads, len(order) - even):
            self._train_beside(jobs, [order[even + i :: parts] for i in range(parts)], done)
        return done

    def _train_beside(self, jobs: Jobs, pieces: list[Tensor], done: Trained) -> None:
        """Deals the pieces out to threads, and the cores to the threads."""
        cores = len(self.beside)
        threads = min(cores, len(pieces))
        shares, each = [pieces[i::threads] for i in range(threads)], cores // threads
        with (
            _cores(each),
            ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(each,)) as pool,
        ):
            list(pool.map(self._train_pieces, self.beside, repeat(jobs), shares, repeat(done)))

    def _piece_for(self, jobs: Jobs) -> int:
        """How many jobs are stepped at once: on a GPU as many as its free memory seems to hold."""
        if self.on_cpu:
            return self.piece
        free, _ = torch.cuda.mem_get_info(self.task.device)
        kept = torch.cuda.memory_reserved(self.task.device) - torch.cuda.memory_allocated(self.task.device)
        each = self.stepper.bytes_for_a_job(int(jobs.steps.max()))
        return max(1, min(self.piece, int(0.8 * (free + kept)) // each))

    def _train_pieces(self, stepper: Stepper, jobs: Jobs, waiting: list[Tensor], done: Trained) -> None:
        while waiting:
            these = waiting.pop(0)
            found = self._try_piece(stepper, jobs.take(these))
            if found is None:
                # Out of memory, and no longer inside the handler, which would keep the memory alive.
                stepper.release()
                if not self.on_cpu:
                    torch.cuda.empty_cache()
                self.piece = -(-len(these) // 2)
                waiting = [half for part in (these, *waiting) for half in part.split(self.piece)]
                continue
            moves, loss = found
            where = these.to(moves.device)
            done.moves[where], done.loss[where] = moves, loss

    def _try_piece(self, stepper: Stepper, jobs: Jobs) -> tuple[Tensor, Tensor] | None:
        try:
            return self._train_piece(stepper, jobs)
        except torch.OutOfMemoryError:
            if len(jobs) == 1:
                raise
            return None

    def _train_piece(self, stepper: Stepper, jobs: Jobs) -> tuple[Tensor, Tensor]:
        task = self.task
        params = jobs.models[jobs.model_of.to(task.device)]
        dealt = batches.plan(
            task.members, jobs.offset, jobs.size, jobs.key, jobs.first, int(jobs.steps.max()), task.batch_size
        )
        shared = self.on_cpu and len(self.beside) == 1
        with multiplying(task.device, self.precision), _cores(len(jobs)) if shared else nullcontext():
            loss = stepper.advance(params, jobs, dealt)
        params -= jobs.models[jobs.model_of.to(task.device)]
        return params, loss / jobs.steps.clamp(min=1).to(loss.device)

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Accuracy in percent and mean loss on the test samples of each of `models` [M, parameters], many at once."""
        with torch.no_grad():
            return self.stepper.evaluate(models)


def make_stepper(task: Task, precision: Precision = "float32") -> Stepper:
    """The fastest stepper that can run the task's network side by side.

    On a processor: by hand for chains of common layers, else by vmap. On a GPU: fused kernels for the networks that
    have them, else vmap recorded as CUDA graphs. NotImplementedError if vmap cannot run it.
    """
    if task.device.type == "cuda":
        return fused_steps(task, precision) or captured(task, precision)
    layers = chain_of(task.network.module)
    if layers is not None and task.device.type == "cpu" and _fits(task, layers):
        return Chain(task, layers)
    general = AnyModule(task)
    if trouble := why_not_beside(task, general):
        raise NotImplementedError(trouble)
    return general


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


def _beside(stepper: Stepper, task: Task) -> Stepper:
    """What steps other jobs like `stepper` from another thread at the same time: one with a module of its own, as
    functional calls on one module would meet; a chain calls none."""
    return AnyModule(task) if isinstance(stepper, AnyModule) else stepper


@contextmanager
def _cores(most: int) -> Iterator[None]:
    """Inside this context no more than so many cores share a product."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(before, most))
    try:
        yield
    finally:
        torch.set_num_threads(before)
