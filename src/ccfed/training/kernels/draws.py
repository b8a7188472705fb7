# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""`ccfed.algorithm.streams` and `ccfed.data.inputs` in Triton: the same bits, drawn inside a kernel."""

import triton
import triton.language as tl

from ccfed.algorithm import streams

GAMMA = tl.constexpr(streams.GAMMA + 2**64)
MIX_1 = tl.constexpr(streams.MIX_1 + 2**64)
MIX_2 = tl.constexpr(streams.MIX_2 + 2**64)


@triton.jit
def bits(key, counter):
    """`streams.bits` as uint64: `key` int64 and `counter` (not negative) of shapes that broadcast."""
    z = key.to(tl.uint64, bitcast=True) + (counter.to(tl.uint64) + 1) * GAMMA
    z = (z ^ (z >> 30)) * MIX_1
    z = (z ^ (z >> 27)) * MIX_2
    return z ^ (z >> 31)


@triton.jit
def integers(key, counter, below: tl.constexpr):
    """`streams.integers` as int32."""
    uniform = (bits(key, counter) >> 11).to(tl.int64).to(tl.float64) * (2.0**-53)
    return (uniform * below).to(tl.int32)


@triton.jit
def kept(key, place, threshold: tl.constexpr):
    """`streams.keep_mask` at the linear indices `place`; `threshold` is round(drop * 65536)."""
    lane = (bits(key, place // 4) >> ((place % 4) * 16).to(tl.uint64)) & 0xFFFF
    return lane.to(tl.int32) >= threshold


@triton.jit
def moves(key, slot, CROP: tl.constexpr, FLIP: tl.constexpr):
    """How crop and flip move the image in `slot`: row shift, column shift, and whether it is mirrored."""
    down = tl.zeros_like(slot)
    right = tl.zeros_like(slot)
    mirrored = slot < 0
    if CROP > 0:
        down = integers(key, slot * 3, 2 * CROP + 1) - CROP
        right = integers(key, slot * 3 + 1, 2 * CROP + 1) - CROP
    if FLIP:
        mirrored = (bits(key, slot * 3 + 2) >> 63) == 0
    return down, right, mirrored


@triton.jit
def inputs(
    stored,
    sample,
    feature,
    known,
    down,
    right,
    mirrored,
    factor,
    offset,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    FEATURES: tl.constexpr,
    CHANNELS: tl.constexpr,
    MOVES: tl.constexpr,
):
    """The model's inputs at `feature` of `sample` (shapes that broadcast) as float32; 0 where not `known`."""
    if MOVES:
        channel = feature // (HEIGHT * WIDTH)
        row = (feature // WIDTH) % HEIGHT + down
        column = feature % WIDTH
        column = tl.where(mirrored, WIDTH - 1 - column, column) + right
        inside = (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH) & known
        source = channel * (HEIGHT * WIDTH) + row * WIDTH + column
    else:
        channel = feature // (HEIGHT * WIDTH)
        inside = known
        source = feature
    value = tl.load(stored + sample.to(tl.int64) * FEATURES + source, mask=inside, other=0).to(tl.float32)
    if CHANNELS == 1:
        value = value * tl.load(factor) - tl.load(offset)
    else:
        value = value * tl.load(factor + channel) - tl.load(offset + channel)
    return tl.where(known, value, 0.0)
