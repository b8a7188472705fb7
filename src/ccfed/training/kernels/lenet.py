"""Steps of a convolutional network of the LeNet family: a few fused kernels a step, many steps in one CUDA graph."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from ccfed.training.kernels import batches, head, pooled
from ccfed.training.kernels.perceptron import Precision
from ccfed.training.kernels.work import Work


@dataclass(frozen=True)
class Block:
    """One Conv2d(inputs, outputs, size), ReLU, MaxPool2d(2) on images of height x width; its parameters start at
    `offset`."""

    inputs: int
    outputs: int
    size: int
    height: int
    width: int
    offset: int

    @property
    def pooled(self) -> tuple[int, int]:
        """Height and width of what comes out."""
        return (self.height - self.size + 1) // 2, (self.width - self.size + 1) // 2

    @property
    def parameters(self) -> int:
        """The number of parameters: the weight [outputs, inputs, size, size], then the bias."""
        return self.outputs * (self.inputs * self.size**2 + 1)


@dataclass(frozen=True)
class Lenet:
    """Blocks of convolution, ReLU and pooling, then three Linear layers with ReLU between them.

    The flat parameters are those of the blocks in order, then of the Linear layers with `widths` (inputs, hidden,
    hidden, classes), each weight followed by its bias.
    """

    blocks: tuple[Block, ...]
    widths: tuple[int, int, int, int]

    @property
    def parameters(self) -> int:
        """The number of parameters P."""
        return sum(block.parameters for block in self.blocks) + sum(
            out * (into + 1) for into, out in zip(self.widths, self.widths[1:], strict=False)
        )

    def refusal(self, batch: int) -> str | None:
        """Why the kernels do not take this network with batches of `batch`, or None."""
        if batch > 128:
            return f"batch is {batch}; the fused network takes at most 128"
        for block in self.blocks:
            if block.size % 2 == 0 or block.size > 7:
                return f"a convolution of size {block.size}; the fused network takes 3, 5 and 7"
        if max(self.widths[1:]) > 128:
            return f"a Linear layer of width {max(self.widths[1:])}; the fused network takes at most 128"
        return None


class Stepper:
    """Static buffers for the steps of up to J jobs at once, and the CUDA graph that runs `unroll` steps of all of them.

    Made from a first `work`, whose J, K, B, `x`, `y` and `inputs` it keeps; later works differ in the other tensors
    only. `run` makes all steps. Without CUDA (Triton's interpreter), or with `graph=False`, the same kernels are
    launched one by one.
    """

    def __init__(
        self, model: Lenet, work: Work, precision: Precision = "ieee", unroll: int = 10, graph: bool = True
    ) -> None:
        work.check()
        jobs, most, batch = work.index.shape
        if refusal := model.refusal(batch):
            raise ValueError(refusal)
        device = work.x.device
        self.model, self.precision, self.unroll = model, precision, max(1, min(unroll, most))
        self.work = Work(
            work.x, work.y, work.index.clone(), work.steps.clone(), work.lr.clone(), work.inputs,
            None if work.augment_keys is None else work.augment_keys.clone(),
        )  # fmt: skip
        self.affine = work.affine()
        self.params = torch.zeros(jobs, model.parameters, device=device)
        self.losses = torch.zeros(jobs, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        self.groups = _groups(jobs, model, device)
        x, self.labels = batches.empty_batch(work)
        # What flows forward: the inputs of every block and of the Linear layers; and, back along the same path, errors.
        self.flow, self.winners = [x], []
        for block in model.blocks:
            shape = (jobs, batch, block.outputs, *block.pooled)
            self.flow.append(torch.zeros(shape, device=device))
            self.winners.append(torch.zeros(shape, dtype=torch.uint8, device=device))
        self.errors = [torch.zeros_like(values) for values in self.flow[1:]]
        self.convolved = sum(block.parameters for block in model.blocks)
        self.parts = torch.zeros(jobs * self.groups, self.convolved, device=device)
        self.graph = self._capture() if graph and device.type == "cuda" else None

    def run(self, params: Tensor, work: Work) -> Tensor:
        """Makes all steps of `work` on `params` (float32 [J, P], in place); returns the sums of losses, float32 [J]."""
        kept = self.work
        for mine, theirs in (
            (kept.index, work.index), (kept.steps, work.steps), (kept.lr, work.lr), (self.params, params),
            (kept.augment_keys, work.augment_keys),
        ):  # fmt: skip
            if mine is not None and theirs is not None:
                mine.copy_(theirs)
        self.cursor.zero_()
        self.losses.zero_()
        for _ in range(-(-kept.index.shape[1] // self.unroll)):
            if self.graph is None:
                self._steps()
            else:
                self.graph.replay()
        params.copy_(self.params)
        return self.losses.clone()

    def _capture(self) -> torch.cuda.CUDAGraph:
        # The warm-up compiles every kernel; with no steps left for any job it changes nothing.
        steps = self.work.steps.clone()
        self.work.steps.zero_()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._steps()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._steps()
        self.work.steps.copy_(steps)
        return graph

    def _steps(self) -> None:
        for ahead in range(self.unroll):
            self._step(ahead)
        self.cursor += self.unroll

    def _step(self, ahead: int) -> None:
        model, work = self.model, self.work
        jobs, _, batch = work.index.shape
        total = model.parameters
        when = (work.steps, self.cursor, ahead)
        batches.prepare(work, self.cursor, ahead, self.affine, self.flow[0], self.labels)
        for at, block in enumerate(model.blocks):
            cells, span = batch * block.pooled[0] * block.pooled[1], 128 * _windows(block)
            width = pooled.tile(block.outputs, 8)
            blocks = -(-cells // span)
            pooled._forward[(jobs * blocks, block.outputs // width)](
                self.flow[at], self.params[:, block.offset :], self.flow[at + 1], self.winners[at], *when, total,
                batch, *_shape(block), width, span, blocks, num_warps=4,
            )  # fmt: skip
        head.step(
            self.flow[-1], self.labels, self.params, self.convolved, model.widths, self.errors[-1], work.lr,
            self.losses, *when, self.precision,
        )  # fmt: skip
        for at in reversed(range(len(model.blocks))):
            block = model.blocks[at]
            width = pooled.tile(block.outputs, 4 if block.size < 5 else 3 if block.outputs % 4 else 2)
            pooled._weight_gradient[(jobs * self.groups, block.inputs * (block.outputs // width))](
                self.flow[at], self.errors[at], self.winners[at], self.parts[:, block.offset :], *when, self.convolved,
                batch, *_shape(block), width, 128, self.groups, num_warps=4,
            )  # fmt: skip
            if at > 0:
                squares = batch * ((block.height + 1) // 2) * ((block.width + 1) // 2)
                width = pooled.tile(block.inputs, 8)
                blocks = -(-squares // 128)
                pooled._input_gradient[(jobs * blocks, block.inputs // width)](
                    self.params[:, block.offset :], self.errors[at], self.winners[at], self.errors[at - 1], *when,
                    total, batch, *_shape(block), width, 128, blocks, num_warps=4,
                )  # fmt: skip
        pooled._update[(jobs, -(-self.convolved // 256))](
            self.params, self.parts, work.lr, *when, total, self.convolved,
            self.convolved, self.groups, 256, num_warps=4,
        )  # fmt: skip


def _shape(block: Block) -> tuple[int, ...]:
    return block.inputs, block.outputs, block.size + 1, block.height, block.width


def _windows(block: Block) -> int:
    """How many pooling windows a thread of the forward kernel owns: as many as its registers hold."""
    return 2 if block.size <= 5 else 1


def _groups(jobs: int, model: Lenet, device: torch.device) -> int:
    """Into how many parts a job's batch is split for the weight gradients, so that few jobs still fill the GPU."""
    if device.type != "cuda":
        return 2
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return max(1, min(16, triton.next_power_of_2(4 * processors // (6 * jobs))))
