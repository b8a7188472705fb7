# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""2-D convolution with weights of their own for every job, differentiable, and with a rule for `torch.func.vmap`.

PyTorch turns a vmapped convolution into a grouped one, which is slow. Here it is an implicit matrix product per job:
the pixels under the kernel are gathered as they are needed and never written. The gradients are kernels of the same
kind; the weight gradient sums its parts in a fixed order. Any stride, zero padding and dilation; no groups, no second
derivative.
"""

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd import Function

from ccfed.training.kernels.perceptron import Precision

Pair = tuple[int, int]
# stride, padding, dilation and precision of the products
How = tuple[Pair, Pair, Pair, Precision]
_TYPES = (torch.float32, torch.float16, torch.bfloat16)


@triton.jit
def _forward(
    x, weight, out, positions, blocks,
    IN: tl.constexpr, OUT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,
    PAD_Y: tl.constexpr, PAD_X: tl.constexpr, STEP_Y: tl.constexpr, STEP_X: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK: tl.constexpr, CHANNELS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    DEPTH: tl.constexpr = IN * TALL * WIDE
    job = (tl.program_id(0) // blocks).to(tl.int64)
    position = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    image = (position // (ROWS * COLUMNS)).to(tl.int64)
    cell = position % (ROWS * COLUMNS)
    row = (cell // COLUMNS) * STRIDE_Y - PAD_Y
    column = (cell % COLUMNS) * STRIDE_X - PAD_X
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    images = positions // (ROWS * COLUMNS)
    x += (job * images + image) * (IN * HEIGHT * WIDTH)
    weight += job * (OUT * DEPTH)
    total = tl.zeros([BLOCK, CHANNELS], tl.float32)
    for start in range(0, DEPTH, INNER):
        tap = start + tl.arange(0, INNER)
        y = row[:, None] + (((tap // WIDE) % TALL) * STEP_Y)[None, :]
        z = column[:, None] + ((tap % WIDE) * STEP_X)[None, :]
        inside = (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH)
        inside = inside & (position < positions)[:, None] & (tap < DEPTH)[None, :]
        pixels = tl.load(
            x[:, None] + (tap // (TALL * WIDE))[None, :] * (HEIGHT * WIDTH) + y * WIDTH + z, mask=inside, other=0.0
        )
        taps = tl.load(
            weight + channel[None, :] * DEPTH + tap[:, None],
            mask=(channel < OUT)[None, :] & (tap < DEPTH)[:, None], other=0.0,
        )  # fmt: skip
        total = tl.dot(pixels, taps, total, input_precision=PRECISION)
    place = ((job * images + image) * (OUT * ROWS * COLUMNS) + cell)[:, None] + channel[None, :] * (ROWS * COLUMNS)
    real = (position < positions)[:, None] & (channel < OUT)[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=real)


@triton.jit
def _input_gradient(
    error, weight, out, positions, blocks,
    IN: tl.constexpr, OUT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,
    PAD_Y: tl.constexpr, PAD_X: tl.constexpr, STEP_Y: tl.constexpr, STEP_X: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK: tl.constexpr, CHANNELS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    TAPS: tl.constexpr = TALL * WIDE
    DEPTH: tl.constexpr = OUT * TAPS
    job = (tl.program_id(0) // blocks).to(tl.int64)
    position = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    image = (position // (HEIGHT * WIDTH)).to(tl.int64)
    cell = position % (HEIGHT * WIDTH)
    row = cell // WIDTH + PAD_Y
    column = cell % WIDTH + PAD_X
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    images = positions // (HEIGHT * WIDTH)
    error += (job * images + image) * (OUT * ROWS * COLUMNS)
    weight += job * (OUT * IN * TAPS)
    total = tl.zeros([BLOCK, CHANNELS], tl.float32)
    for start in range(0, DEPTH, INNER):
        tap = start + tl.arange(0, INNER)
        y = row[:, None] - (((tap // WIDE) % TALL) * STEP_Y)[None, :]
        z = column[:, None] - ((tap % WIDE) * STEP_X)[None, :]
        inside = (y >= 0) & (z >= 0) & (y % STRIDE_Y == 0) & (z % STRIDE_X == 0)
        y = y // STRIDE_Y
        z = z // STRIDE_X
        inside = inside & (y < ROWS) & (z < COLUMNS) & (position < positions)[:, None] & (tap < DEPTH)[None, :]
        errors = tl.load(
            error[:, None] + (tap // TAPS)[None, :] * (ROWS * COLUMNS) + y * COLUMNS + z, mask=inside, other=0.0
        )
        taps = tl.load(
            weight + ((tap // TAPS) * (IN * TAPS) + tap % TAPS)[:, None] + channel[None, :] * TAPS,
            mask=(channel < IN)[None, :] & (tap < DEPTH)[:, None], other=0.0,
        )  # fmt: skip
        total = tl.dot(errors, taps, total, input_precision=PRECISION)
    place = ((job * images + image) * (IN * HEIGHT * WIDTH) + cell)[:, None] + channel[None, :] * (HEIGHT * WIDTH)
    real = (position < positions)[:, None] & (channel < IN)[None, :]
    tl.store(out + place, total.to(out.dtype.element_ty), mask=real)


@triton.jit
def _weight_gradient(
    x, error, parts, positions, groups, share,
    IN: tl.constexpr, OUT: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr, STRIDE_Y: tl.constexpr, STRIDE_X: tl.constexpr,
    PAD_Y: tl.constexpr, PAD_X: tl.constexpr, STEP_Y: tl.constexpr, STEP_X: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK: tl.constexpr, CHANNELS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    DEPTH: tl.constexpr = IN * TALL * WIDE
    job = (tl.program_id(0) // groups).to(tl.int64)
    begin = (tl.program_id(0) % groups) * share
    tap = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    channel = tl.program_id(2) * CHANNELS + tl.arange(0, CHANNELS)
    down = ((tap // WIDE) % TALL) * STEP_Y - PAD_Y
    across = (tap % WIDE) * STEP_X - PAD_X
    images = positions // (ROWS * COLUMNS)
    x += job * images * (IN * HEIGHT * WIDTH)
    error += job * images * (OUT * ROWS * COLUMNS)
    total = tl.zeros([BLOCK, CHANNELS], tl.float32)
    for start in range(0, share, INNER):
        position = begin + start + tl.arange(0, INNER)
        image = (position // (ROWS * COLUMNS)).to(tl.int64)
        cell = position % (ROWS * COLUMNS)
        y = ((cell // COLUMNS) * STRIDE_Y)[None, :] + down[:, None]
        z = ((cell % COLUMNS) * STRIDE_X)[None, :] + across[:, None]
        inside = (y >= 0) & (y < HEIGHT) & (z >= 0) & (z < WIDTH)
        inside = inside & (position < positions)[None, :] & (tap < DEPTH)[:, None]
        source = (image * (IN * HEIGHT * WIDTH))[None, :] + ((tap // (TALL * WIDE)) * (HEIGHT * WIDTH))[:, None]
        pixels = tl.load(x + source + y * WIDTH + z, mask=inside, other=0.0)
        place = (image * (OUT * ROWS * COLUMNS) + cell)[:, None] + channel[None, :] * (ROWS * COLUMNS)
        errors = tl.load(error + place, mask=(position < positions)[:, None] & (channel < OUT)[None, :], other=0.0)
        total = tl.dot(pixels, errors, total, input_precision=PRECISION)
    parts += tl.program_id(0).to(tl.int64) * (OUT * DEPTH)
    here = (tap < DEPTH)[:, None] & (channel < OUT)[None, :]
    tl.store(parts + channel[None, :] * DEPTH + tap[:, None], total, mask=here)


def _geometry(x: Tensor, weight: Tensor, rows: int, columns: int, how: How) -> tuple[Any, ...]:
    """The kernels' compile-time arguments that say what is convolved: `x` [J, B, C, H, W], `weight` [J, O, C, h, w]."""
    stride, padding, dilation, precision = how
    _, _, channels, height, width = x.shape
    out, tall, wide = weight.shape[1], *weight.shape[3:]
    return channels, out, height, width, rows, columns, tall, wide, *stride, *padding, *dilation, precision


def _side(size: int, how: How, axis: int, kernel: int) -> int:
    stride, padding, dilation, _ = how
    return (size + 2 * padding[axis] - dilation[axis] * (kernel - 1) - 1) // stride[axis] + 1


def _tile(channels: int) -> int:
    return int(min(64, max(16, triton.next_power_of_2(channels))))


class _Convolve(Function):
    """x [J, B, C, H, W] and weight [J, O, C, h, w] to [J, B, O, rows, columns]."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, how: How) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        jobs, batch = x.shape[:2]
        rows, columns = (_side(x.shape[3 + axis], how, axis, weight.shape[3 + axis]) for axis in (0, 1))
        out = x.new_empty(jobs, batch, weight.shape[1], rows, columns)
        positions, tile = batch * rows * columns, _tile(weight.shape[1])
        blocks = -(-positions // 128)
        _forward[(jobs * blocks, -(-weight.shape[1] // tile))](
            x, weight, out, positions, blocks, *_geometry(x, weight, rows, columns, how), 128, tile, 32, num_warps=4
        )
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, How], output: Tensor) -> None:
        x, weight, ctx.how = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        to_x = _InputGradient.apply(error, weight, tuple(x.shape[-2:]), ctx.how) if ctx.needs_input_grad[0] else None
        to_weight = (
            _WeightGradient.apply(x, error, tuple(weight.shape[-2:]), ctx.how) if ctx.needs_input_grad[1] else None
        )
        return to_x, to_weight, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor, how: How) -> tuple[Tensor, int]:
        return _folded(_Convolve, info.batch_size, in_dims, x, weight, how), 0


class _InputGradient(Function):
    """error [J, B, O, rows, columns] and weight to the gradient [J, B, C, *size] with respect to the input."""

    @staticmethod
    def forward(error: Tensor, weight: Tensor, size: Pair, how: How) -> Tensor:
        error, weight = error.contiguous(), weight.contiguous()
        jobs, batch, _, rows, columns = error.shape
        out = error.new_empty(jobs, batch, weight.shape[2], *size)
        positions, tile = batch * size[0] * size[1], _tile(weight.shape[2])
        blocks = -(-positions // 128)
        _input_gradient[(jobs * blocks, -(-weight.shape[2] // tile))](
            error,
            weight,
            out,
            positions,
            blocks,
            *_geometry(out, weight, rows, columns, how),
            128,
            tile,
            32,
            num_warps=4,
        )
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[None, ...]:
        raise NotImplementedError("the fused convolution has no second derivative")

    @staticmethod
    def vmap(info: Any, in_dims: Any, error: Tensor, weight: Tensor, size: Pair, how: How) -> tuple[Tensor, int]:
        return _folded(_InputGradient, info.batch_size, in_dims, error, weight, size, how), 0


class _WeightGradient(Function):
    """x and error to the gradient [J, O, C, *size] with respect to the weight."""

    @staticmethod
    def forward(x: Tensor, error: Tensor, size: Pair, how: How) -> Tensor:
        x, error = x.contiguous(), error.contiguous()
        jobs, batch, out, rows, columns = error.shape
        like = x.new_empty(jobs, out, x.shape[2], *size)
        positions, depth, tile = batch * rows * columns, x.shape[2] * size[0] * size[1], _tile(out)
        blocks, tiles = -(-depth // 64), -(-out // tile)
        # The positions of few jobs are shared out to more programs; how many depends on the shapes alone.
        groups = max(1, min(-(-positions // 256), 1056 // (jobs * blocks * tiles)))
        share = -(-positions // (groups * 32)) * 32
        parts = torch.empty(jobs, groups, *like.shape[1:], device=x.device)
        _weight_gradient[(jobs * groups, blocks, tiles)](
            x,
            error,
            parts,
            positions,
            groups,
            share,
            *_geometry(x, like, rows, columns, how),
            64,
            tile,
            32,
            num_warps=4,
        )
        return (parts[:, 0] if groups == 1 else parts.sum(1)).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept: there is no second derivative."""

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[None, ...]:
        raise NotImplementedError("the fused convolution has no second derivative")

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, error: Tensor, size: Pair, how: How) -> tuple[Tensor, int]:
        return _folded(_WeightGradient, info.batch_size, in_dims, x, error, size, how), 0


def _folded(function: Any, many: int, dims: tuple[int | None, ...], one: Tensor, other: Tensor, *rest: Any) -> Tensor:
    """`function` with the mapped dimension of its two tensors folded into their jobs: [many, J, ...]."""
    jobs = [
        (tensor.expand(many, *tensor.shape) if dim is None else tensor.movedim(dim, 0)).flatten(0, 1)
        for tensor, dim in zip((one, other), dims, strict=False)
    ]
    return cast(Tensor, function.apply(*jobs, *rest).unflatten(0, (many, -1)))


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = (1, 1),
    padding: Pair = (0, 0),
    dilation: Pair = (1, 1),
    precision: Precision = "ieee",
) -> Tensor:
    """Each job's convolution: x [J, B, C, H, W], weight [J, O, C, h, w], bias [J, O] to [J, B, O, rows, columns].

    Float32, float16 or bfloat16 on a GPU; sums in float32. Differentiable once in all three, and `torch.func.vmap` adds
    its dimension to the jobs. The order in which a weight gradient is summed depends on the number of jobs; nothing
    else of a job's result depends on the others.
    """
    out = cast(Tensor, _Convolve.apply(x, weight, (stride, padding, dilation, precision)))
    return out if bias is None else out + bias[:, None, :, None, None]


class StackedConv2d(nn.Conv2d):
    """An nn.Conv2d whose forward is `convolve`, wherever that applies: same parameters, same results but for
    rounding."""

    precision: Precision = "ieee"

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of x [B, C, H, W]; the ordinary one for other shapes, types, groups and paddings."""
        if x.dim() != 4 or x.dtype not in _TYPES or self.groups > 1 or self.padding_mode != "zeros":
            return super().forward(x)
        if isinstance(self.padding, str) or x.dtype != self.weight.dtype:
            return super().forward(x)
        how = cast(tuple[Pair, Pair, Pair], (self.stride, self.padding, self.dilation))
        bias = None if self.bias is None else self.bias[None]
        return convolve(x[None], self.weight[None], bias, *how, self.precision)[0]


def stack_convolutions(module: nn.Module, precision: Precision = "ieee") -> nn.Module:
    """Turns every nn.Conv2d inside `module` (in place) into a `StackedConv2d`, for use under `torch.func.vmap`.

    Subclasses of nn.Conv2d, which may compute something else, stay as they are. The parameters keep names and values.
    """
    for part in module.modules():
        if type(part) is nn.Conv2d:
            part.__class__ = StackedConv2d
            cast(StackedConv2d, part).precision = precision
    return module
