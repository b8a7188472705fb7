"""The stepper for large models on a GPU: one client's step as a CUDA graph, several clients side by side on streams.

A step of a large model fills most of a GPU by itself, so stacking gains nothing, and a stacked convolution loses what
the libraries' own kernels are good at. What is left to gain is the launch overhead (a graph) and the gaps between
kernels (streams).
"""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from ccfed.training import batches, kernels
from ccfed.training.batches import BatchPlan
from ccfed.training.dropout import StreamedDropout
from ccfed.training.engine import Jobs, Precision, Task
from ccfed.training.multiplying import multiplying
from ccfed.training.recording import Recorded, on
from ccfed.training.stepping import evaluate_in_pieces, inputs_of, values_per_sample

LANES = 8

Forward = Callable[[dict[str, Tensor], Tensor], Tensor]


class Lane:
    """Room for one client on a stream of its own, and the graph of its step.

    Images and kernels lie channels last where the matrix units want them so (all but true float32). With bfloat16 the
    products take rounded copies of the parameters, which themselves stay float32, as do the sums.
    """

    def __init__(self, task: Task, forward: Forward, precision: Precision, steps: int) -> None:
        device = task.device
        self.task, self.forward, self.most = task, forward, steps
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.products = torch.bfloat16 if precision == "bfloat16" else task.dtype
        self.last = precision != "float32"
        self.flat = torch.zeros(task.network.size, dtype=task.dtype, device=device)
        self.rounded = self.flat.to(self.products, copy=True) if self.products != task.dtype else self.flat
        self.samples = torch.full((steps, task.batch_size), -1, dtype=torch.int32, device=device)
        self.crops = torch.zeros(steps, dtype=torch.int64, device=device)
        self.drops = torch.zeros(steps, dtype=torch.int64, device=device)
        self.lr = torch.zeros((), dtype=task.dtype, device=device)
        self.loss = torch.zeros((), dtype=task.dtype, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        # As an optimiser would see them: leaves, each a part of the one vector.
        self.leaves = {name: part.requires_grad_() for name, part in self._parts(self.rounded).items()}
        with multiplying(device, precision):
            # With a learning rate of 0 and no samples the warm-up changes nothing but the cursor.
            self.step = Recorded(self._step, device, self.cursor.zero_, self.stream)

    def _parts(self, flat: Tensor) -> dict[str, Tensor]:
        """Each parameter as a part of `flat`, in this lane's own order."""
        network, parts = self.task.network, {}
        for name, offset, shape in zip(network.names, network.offsets, network.shapes, strict=True):
            part = flat.narrow(0, offset, shape.numel())
            if self.last and len(shape) == 4:
                out, into, tall, wide = shape
                part = part.view(out, tall, wide, into).permute(0, 3, 1, 2)
            else:
                part = part.view(shape)
            parts[name] = part.detach()
        return parts

    def load(self, params: Tensor, samples: Tensor, crops: Tensor, drops: Tensor, lr: Tensor) -> None:
        """Copies a client in: its parameters [P], its batches [K, B], its streams [K] and its learning rate."""
        steps = len(samples)
        mine, given = self._parts(self.flat), self.task.network.views(params)
        for name, part in mine.items():
            part.copy_(given[name])
        self.samples[:steps] = samples
        self.crops[:steps] = crops
        self.drops[:steps] = drops
        self.lr.copy_(lr)
        self.loss.zero_()
        self.cursor.zero_()
        if self.rounded is not self.flat:
            self.rounded.copy_(self.flat)

    def unload(self, params: Tensor, loss: Tensor) -> None:
        """Copies the client's parameters and its sum of losses out."""
        given = self.task.network.views(params)
        for name, part in self._parts(self.flat).items():
            given[name].copy_(part)
        loss.copy_(self.loss)

    def _step(self) -> None:
        task = self.task
        chosen = self.samples.index_select(0, self.cursor)
        crop = self.crops.index_select(0, self.cursor) if task.inputs.augments else None
        x, y, filled = (found[0] for found in inputs_of(task, chosen, crop))
        if x.is_floating_point():
            x = x.to(self.products)
        if self.last and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.enable_grad(), StreamedDropout(self.drops.index_select(0, self.cursor)[0]):
            scores = self.forward(self.leaves, x).to(task.dtype)
            each = F.cross_entropy(scores, y, reduction="none")
            loss = (each * filled).sum() / filled.sum().clamp(min=1)
        gradients = torch.autograd.grad(loss, list(self.leaves.values()))
        with torch.no_grad():
            moves = torch.cat([_in_memory_order(g, self.last) for g in gradients]).to(task.dtype)
            self.flat.addcmul_(moves, -self.lr)
            if self.rounded is not self.flat:
                self.rounded.copy_(self.flat)
            self.loss += loss.detach()
            self.cursor += 1


def _in_memory_order(gradient: Tensor, last: bool) -> Tensor:
    return (gradient.permute(0, 2, 3, 1) if last and gradient.dim() == 4 else gradient).reshape(-1)


class Lanes:
    """Up to eight clients side by side, each on a stream; the next ones follow as they finish."""

    name = "a graph for each client, on streams"

    def __init__(self, task: Task, precision: Precision) -> None:
        self.task, self.precision = task, precision
        # A copy, so that the caller's module keeps its parameters and its convolutions.
        self.module = copy.deepcopy(task.network.module)
        if kernels.available(task.device):
            self.module = kernels.normalise_densely(self.module)
        self.forward: Forward = lambda params, x: functional_call(self.module, params, (x,))
        self.values = values_per_sample(task)
        self.most = 0
        self.lanes: list[Lane] = []

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """Replays the jobs' graphs in turn, eight jobs at a time; the host does not wait."""
        self.module.train()
        jobs_here, most = dealt.samples.shape[:2]
        self._open(min(LANES, jobs_here), most)
        step = torch.arange(most, device=params.device) + jobs.first.to(params.device)[:, None]
        key = jobs.key.to(params.device)[:, None]
        crops, drops = batches.augment_key(key, step), batches.dropout_key(key, step)
        lr = jobs.lr.to(params.device, params.dtype)
        losses = params.new_zeros(jobs_here)
        steps = jobs.steps.tolist()
        streams = [lane.stream for lane in self.lanes if lane.stream is not None]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream(params.device))
        for first in range(0, jobs_here, len(self.lanes)):
            # In the jobs' order, so that the lanes, which take turns, all have something to do.
            beside = list(zip(range(first, jobs_here), self.lanes, strict=False))
            for j, lane in beside:
                with on(lane.stream):
                    lane.load(params[j], dealt.samples[j], crops[j], drops[j], lr[j])
            for k in range(steps[first]):
                for j, lane in beside:
                    if k < steps[j]:
                        with on(lane.stream):
                            lane.step()
            for j, lane in beside:
                with on(lane.stream):
                    lane.unload(params[j], losses[j])
        for stream in streams:
            torch.cuda.current_stream(params.device).wait_stream(stream)
        return losses

    def _open(self, lanes: int, steps: int) -> None:
        if steps > self.most:
            self.lanes.clear()
            self.most = steps
        while len(self.lanes) < lanes:
            try:
                self.lanes.append(Lane(self.task, self.forward, self.precision, self.most))
            except torch.OutOfMemoryError:
                if not self.lanes:
                    raise
                torch.cuda.empty_cache()
                return

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """One model after another, on large pieces of the test samples."""
        self.module.eval()
        last = self.precision != "float32"

        def scores_of(some: Tensor, x: Tensor) -> Tensor:
            if last and x.dim() == 4:
                x = x.contiguous(memory_format=torch.channels_last)
            return torch.stack([self.forward(self.task.network.views(model), x) for model in some])

        with multiplying(self.task.device, self.precision):
            return evaluate_in_pieces(self.task, models, scores_of, self.values)

    def bytes_for_a_job(self, steps: int) -> int:
        """Parameters before and after; the lanes' own memory does not grow with the jobs."""
        return 2 * self.task.network.size * self.task.dtype.itemsize + 60 * steps * self.task.batch_size

    def release(self) -> None:
        """Drops the lanes, their graphs and their memory."""
        self.lanes.clear()
