# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""Group normalisation in one kernel a direction, whether images lie channels first or channels last.

PyTorch's own takes images channels first only: a network that keeps them channels last, as the matrix units want them,
would copy every image there and back. A program takes one image's channels of a few whole groups. Statistics and sums
are float32; the gradients of weight and bias are summed over the images in a fixed order.
"""

from typing import Any, cast

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.autograd import Function

# A program takes at least so many channels, so that what it reads lies together, and so many numbers at once.
CHANNELS_TOGETHER = 16
NUMBERS_AT_ONCE = 16384


@triton.jit
def _group_sums(each, DEEP: tl.constexpr):
    """Sums of groups of DEEP neighbours, each repeated for every member: [CHANNELS] to [CHANNELS]."""
    GROUPS: tl.constexpr = each.shape[0] // DEEP
    sums = tl.sum(tl.reshape(each, [GROUPS, DEEP]), 1)
    return tl.reshape(tl.broadcast_to(sums[:, None], [GROUPS, DEEP]), [each.shape[0]])


@triton.jit
def _forward(
    x, scale, shift, y, means, factors, eps,
    DEEP: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr, ACROSS: tl.constexpr, ALONG: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(1) * TILE + tl.arange(0, TILE)
    image = tl.program_id(0).to(tl.int64)
    COUNT: tl.constexpr = DEEP * PIXELS
    within = tl.arange(0, BLOCK)[:, None] * ALONG + (channel * ACROSS)[None, :]
    x += image * (CHANNELS * PIXELS) + within
    y += image * (CHANNELS * PIXELS) + within
    real = (tl.arange(0, BLOCK) < PIXELS)[:, None]
    first = tl.load(x, mask=real, other=0.0).to(tl.float32)
    total = tl.sum(first, 0)
    for start in range(BLOCK, PIXELS, BLOCK):
        here = (start + tl.arange(0, BLOCK) < PIXELS)[:, None]
        total += tl.sum(tl.load(x + start * ALONG, mask=here, other=0.0).to(tl.float32), 0)
    mean = _group_sums(total, DEEP) / COUNT
    away = tl.where(real, first - mean[None, :], 0.0)
    total = tl.sum(away * away, 0)
    for start in range(BLOCK, PIXELS, BLOCK):
        here = (start + tl.arange(0, BLOCK) < PIXELS)[:, None]
        value = tl.load(x + start * ALONG, mask=here, other=0.0).to(tl.float32)
        away = tl.where(here, value - mean[None, :], 0.0)
        total += tl.sum(away * away, 0)
    factor = tl.rsqrt(_group_sums(total, DEEP) / COUNT + eps)
    tl.store(means + image * CHANNELS + channel, mean)
    tl.store(factors + image * CHANNELS + channel, factor)
    gain = factor * tl.load(scale + channel).to(tl.float32)
    base = tl.load(shift + channel).to(tl.float32) - mean * gain
    tl.store(y, (first * gain[None, :] + base[None, :]).to(y.dtype.element_ty), mask=real)
    for start in range(BLOCK, PIXELS, BLOCK):
        here = (start + tl.arange(0, BLOCK) < PIXELS)[:, None]
        value = tl.load(x + start * ALONG, mask=here, other=0.0).to(tl.float32)
        tl.store(y + start * ALONG, (value * gain[None, :] + base[None, :]).to(y.dtype.element_ty), mask=here)


@triton.jit
def _backward(
    x, error, scale, means, factors, back, sums, images,
    DEEP: tl.constexpr, CHANNELS: tl.constexpr, PIXELS: tl.constexpr, ACROSS: tl.constexpr, ALONG: tl.constexpr,
    TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(1) * TILE + tl.arange(0, TILE)
    image = tl.program_id(0).to(tl.int64)
    COUNT: tl.constexpr = DEEP * PIXELS
    within = tl.arange(0, BLOCK)[:, None] * ALONG + (channel * ACROSS)[None, :]
    x += image * (CHANNELS * PIXELS) + within
    error += image * (CHANNELS * PIXELS) + within
    back += image * (CHANNELS * PIXELS) + within
    mean = tl.load(means + image * CHANNELS + channel)
    factor = tl.load(factors + image * CHANNELS + channel)
    weight = tl.load(scale + channel).to(tl.float32)
    real = (tl.arange(0, BLOCK) < PIXELS)[:, None]
    first = (tl.load(x, mask=real, other=0.0).to(tl.float32) - mean[None, :]) * factor[None, :]
    wrong = tl.load(error, mask=real, other=0.0).to(tl.float32)
    plain = tl.sum(wrong, 0)
    along = tl.sum(wrong * first, 0)
    for start in range(BLOCK, PIXELS, BLOCK):
        here = (start + tl.arange(0, BLOCK) < PIXELS)[:, None]
        value = (tl.load(x + start * ALONG, mask=here, other=0.0).to(tl.float32) - mean[None, :]) * factor[None, :]
        more = tl.load(error + start * ALONG, mask=here, other=0.0).to(tl.float32)
        plain += tl.sum(more, 0)
        along += tl.sum(more * value, 0)
    tl.store(sums + image * CHANNELS + channel, along)
    tl.store(sums + (images + image) * CHANNELS + channel, plain)
    level = _group_sums(plain * weight, DEEP) / COUNT
    slope = _group_sums(along * weight, DEEP) / COUNT
    moved = factor[None, :] * (wrong * weight[None, :] - level[None, :] - first * slope[None, :])
    tl.store(back, moved.to(back.dtype.element_ty), mask=real)
    for start in range(BLOCK, PIXELS, BLOCK):
        here = (start + tl.arange(0, BLOCK) < PIXELS)[:, None]
        value = (tl.load(x + start * ALONG, mask=here, other=0.0).to(tl.float32) - mean[None, :]) * factor[None, :]
        more = tl.load(error + start * ALONG, mask=here, other=0.0).to(tl.float32)
        moved = factor[None, :] * (more * weight[None, :] - level[None, :] - value * slope[None, :])
        tl.store(back + start * ALONG, moved.to(back.dtype.element_ty), mask=here)


@triton.jit
def _sum_images(sums, out, images, CHANNELS: tl.constexpr, TILE: tl.constexpr):
    """`sums` [2, images, CHANNELS] to `out` [2, CHANNELS]."""
    channel = tl.program_id(1) * TILE + tl.arange(0, TILE)
    sums += tl.program_id(0).to(tl.int64) * images * CHANNELS
    total = tl.zeros([32, TILE], tl.float32)
    for start in range(0, images, 32):
        image = start + tl.arange(0, 32)
        here = (image < images)[:, None] & (channel < CHANNELS)[None, :]
        total += tl.load(sums + image[:, None] * CHANNELS + channel[None, :], mask=here, other=0.0)
    found = tl.sum(total, 0)
    tl.store(out + tl.program_id(0) * CHANNELS + channel, found.to(out.dtype.element_ty), mask=channel < CHANNELS)


def _geometry(x: Tensor, groups: int) -> tuple[tuple[int, int], tuple[int, ...]]:
    """The programs, and the kernels' compile-time arguments; `x` [B, C, H, W] is dense in one of the two layouts."""
    images, channels, height, width = x.shape
    deep, pixels = channels // groups, height * width
    tile = deep
    while tile < CHANNELS_TOGETHER and channels % (2 * tile) == 0:
        tile *= 2
    block = max(1, min(triton.next_power_of_2(pixels), NUMBERS_AT_ONCE // tile))
    strides = (x.stride(1), x.stride(3))
    return (images, channels // tile), (deep, channels, pixels, *strides, tile, block)


class _Normalise(Function):
    """x [B, C, H, W], scale and shift [C] to the normalised images, in the layout of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor, groups: int, eps: float) -> Tensor:
        programs, how = _geometry(x, groups)
        y = torch.empty_like(x)
        means, factors = (torch.empty(x.shape[:2], dtype=torch.float32, device=x.device) for _ in range(2))
        _forward[programs](x, scale, shift, y, means, factors, eps, *how, num_warps=8)
        ctx.save_for_backward(x, scale, means, factors)
        ctx.groups = groups
        return y

    @staticmethod
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, means, factors = ctx.saved_tensors
        if error.stride() != x.stride():
            error = torch.empty_like(x).copy_(error)
        programs, how = _geometry(x, ctx.groups)
        images, channels = x.shape[:2]
        back, sums = torch.empty_like(x), torch.empty(2, images, channels, dtype=torch.float32, device=x.device)
        _backward[programs](x, error, scale, means, factors, back, sums, images, *how, num_warps=8)
        of_both = torch.empty(2, channels, dtype=scale.dtype, device=x.device)
        _sum_images[(2, -(-channels // 32))](sums, of_both, images, channels, 32, num_warps=4)
        return back, of_both[0], of_both[1], None, None


class DenseGroupNorm(nn.GroupNorm):
    """An nn.GroupNorm whose forward is one kernel, wherever that applies: same parameters, same results but for
    rounding."""

    def forward(self, x: Tensor) -> Tensor:
        """The normalised x [B, C, H, W]; in the ordinary way for other shapes and layouts."""
        deep = self.num_channels // self.num_groups
        dense = x.dim() == 4 and (x.is_contiguous() or x.is_contiguous(memory_format=torch.channels_last))
        if not dense or not self.affine or deep & (deep - 1) or x.dtype not in (torch.float32, torch.bfloat16):
            return super().forward(x)
        return cast(Tensor, _Normalise.apply(x, self.weight, self.bias, self.num_groups, self.eps))


def normalise_densely(module: nn.Module) -> nn.Module:
    """Turns every nn.GroupNorm inside `module` (in place) into a `DenseGroupNorm`; not for `torch.func.vmap`.

    Subclasses of nn.GroupNorm, which may compute something else, stay as they are. The parameters keep names and
    values.
    """
    for part in module.modules():
        if type(part) is nn.GroupNorm:
            part.__class__ = DenseGroupNorm
    return module
