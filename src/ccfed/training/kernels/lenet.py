"""Steps of a convolutional network of the LeNet family: a few fused kernels a step, many steps in one CUDA graph."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ccfed.training.kernels import batches, head, pooled
from ccfed.training.kernels.perceptron import Precision
from ccfed.training.kernels.work import Work
from ccfed.training.recording import Recorded

# A weight gradient is summed by several programs, each over at least so many pooling windows, then over the programs:
# enough windows to make the last sum of a program cheap, enough programs to let few jobs fill a GPU.
WINDOWS_A_PROGRAM = 1600
MOST_GROUPS = 8

# From so many jobs on, the shape of a program is chosen for its own speed.
MANY_JOBS = 32


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

    Made from a first `work`, whose J and K it takes as the most it will ever be given, and whose `x`, `y`, B and
    `inputs` it keeps. `run` makes all steps. Without CUDA (Triton's interpreter), or with `graph=False`, the same
    kernels are launched one by one. Nothing of a job's result depends on what shares the batch.
    """

    def __init__(
        self,
        model: Lenet,
        work: Work,
        precision: Precision = "ieee",
        unroll: int = 10,
        graph: bool = True,
    ) -> None:
        work.check()
        jobs, most, batch = work.index.shape
        if refusal := model.refusal(batch):
            raise ValueError(refusal)
        device = work.x.device
        self.model, self.precision, self.unroll = model, precision, max(1, min(unroll, most))
        self.work = Work(
            work.x,
            work.y,
            torch.full_like(work.index, -1),
            torch.zeros_like(work.steps),
            torch.zeros_like(work.lr),
            work.inputs,
            None if work.augment_keys is None else torch.zeros_like(work.augment_keys),
        )
        self.affine = work.affine()
        self.params = torch.zeros(jobs, model.parameters, device=device)
        self.losses = torch.zeros(jobs, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)
        x, self.labels = batches.empty_batch(work)
        # What flows forward: the inputs of every block and of the Linear layers; and, back along the same path, errors.
        self.flow, self.winners = [x], []
        for block in model.blocks:
            shape = (jobs, batch, block.outputs, *block.pooled)
            self.flow.append(torch.zeros(shape, device=device))
            self.winners.append(torch.zeros(shape, dtype=torch.uint8, device=device))
        self.errors = [torch.zeros_like(values) for values in self.flow[1:]]
        self.convolved = sum(block.parameters for block in model.blocks)
        # What is left of a row, where another block has more parts, stays zero.
        self.groups = [_groups(block, batch) for block in model.blocks]
        self.parts = torch.zeros(jobs * max(self.groups), self.convolved, device=device)
        self.beside = torch.cuda.Stream(device) if graph and device.type == "cuda" else None
        self.room = head.room_for(jobs, batch, model.widths[1], device)
        # As no job has steps yet, recording changes nothing but the cursor.
        self.many_steps = Recorded(self._steps, device, self.cursor.zero_) if graph else self._steps

    def takes(self, work: Work) -> bool:
        """Whether `run` can be given `work`: no more jobs or steps than the first work had, and the same data."""
        mine, theirs = self.work.index.shape, work.index.shape
        return (
            theirs[0] <= mine[0]
            and theirs[1] <= mine[1]
            and theirs[2] == mine[2]
            and work.x is self.work.x
            and work.y is self.work.y
            and work.inputs == self.work.inputs
        )

    def run(self, params: Tensor, work: Work) -> Tensor:
        """Makes all steps of `work` on `params` (float32 [J, P], in place); returns the sums of losses, float32 [J]."""
        kept = self.work
        jobs, most, _ = work.index.shape
        self.params[:jobs].copy_(params)
        kept.index[:jobs, :most].copy_(work.index)
        kept.lr[:jobs].copy_(work.lr)
        kept.steps.zero_()
        kept.steps[:jobs].copy_(work.steps)
        if kept.augment_keys is not None and work.augment_keys is not None:
            kept.augment_keys[:jobs, :most].copy_(work.augment_keys)
        self.cursor.zero_()
        self.losses.zero_()
        for _ in range(-(-most // self.unroll)):
            self.many_steps()
        params.copy_(self.params[:jobs])
        return self.losses[:jobs].clone()

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
            self.flow[-1], self.labels, self.params, self.convolved, model.widths, self.errors[-1], self.room, work.lr,
            self.losses, *when, self.precision,
        )  # fmt: skip
        for at in reversed(range(len(model.blocks))):
            # What a block's weights and what its inputs are told are two kernels that may run side by side.
            with self._side() if at > 0 else nullcontext():
                self._weight_gradient(at, when)
            if at > 0:
                self._input_gradient(at, when)
        if self.beside is not None:
            torch.cuda.current_stream().wait_stream(self.beside)
        pooled._update[(jobs, -(-self.convolved // 256))](
            self.params, self.parts, work.lr, *when, total, self.convolved,
            self.convolved, max(self.groups), 256, num_warps=4,
        )  # fmt: skip

    def _side(self) -> AbstractContextManager[object]:
        if self.beside is None:
            return nullcontext()
        self.beside.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(self.beside)

    def _weight_gradient(self, at: int, when: tuple[Tensor, Tensor, int]) -> None:
        block, groups, (jobs, _, batch) = self.model.blocks[at], self.groups[at], self.work.index.shape
        width = pooled.tile(block.outputs, 4 if block.size <= 5 else 2)
        pooled._weight_gradient[(jobs * groups, block.inputs * (block.outputs // width))](
            self.flow[at], self.errors[at], self.winners[at], self.parts[:, block.offset :], *when, self.convolved,
            batch, *_shape(block), width, 128, groups, max(self.groups), num_warps=4,
        )  # fmt: skip

    def _input_gradient(self, at: int, when: tuple[Tensor, Tensor, int]) -> None:
        block, (jobs, _, batch) = self.model.blocks[at], self.work.index.shape
        squares = batch * ((block.height + 1) // 2) * ((block.width + 1) // 2)
        # Many jobs fill a GPU in any shape; few are done sooner by more and larger programs. The sums are the same.
        many = jobs >= MANY_JOBS
        width, span = pooled.tile(block.inputs, 8 if many else 4), 128 * (1 if many else _windows(block))
        blocks = -(-squares // span)
        pooled._input_gradient[(jobs * blocks, block.inputs // width)](
            self.params[:, block.offset :], self.errors[at], self.winners[at], self.errors[at - 1], *when,
            self.model.parameters, batch, *_shape(block), width, span, blocks, num_warps=4,
        )  # fmt: skip


def _groups(block: Block, batch: int) -> int:
    """In how many parts a weight gradient is summed; it depends on the shapes alone."""
    rows, columns = block.pooled
    return max(1, min(MOST_GROUPS, batch * rows * columns // WINDOWS_A_PROGRAM))


def _shape(block: Block) -> tuple[int, ...]:
    return block.inputs, block.outputs, block.size + 1, block.height, block.width


def _windows(block: Block) -> int:
    """How many pooling windows a thread of the forward kernel owns: as many as its registers hold."""
    return 2 if block.size <= 5 else 1
