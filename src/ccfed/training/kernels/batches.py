# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""One step's batches of all jobs, gathered, cropped, flipped and normalised in one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ccfed.training.kernels import draws
from ccfed.training.kernels.work import Work


@triton.jit
def _prepare(
    stored, labels, index, steps, cursor, keys, factor, offset, x, y,
    ahead, most,
    BATCH: tl.constexpr, FEATURES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr, CROP: tl.constexpr, FLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    job = tl.program_id(0).to(tl.int64)
    # A tensor of one slot rather than a scalar, so that masks and draws see the shapes they see elsewhere.
    slot = tl.program_id(1) + tl.arange(0, 1)
    step = tl.load(cursor).to(tl.int32) + ahead
    if step >= tl.load(steps + job):
        return
    sample = tl.load(index + (job * most + step) * BATCH + slot).to(tl.int64)
    known = sample >= 0
    label = tl.load(labels + sample, mask=known, other=-1)
    tl.store(y + job * BATCH + slot, label.to(tl.int32))
    key = tl.zeros([1], tl.int64)
    if CROP > 0 or FLIP:
        key += tl.load(keys + job * most + step)
    down, right, mirrored = draws.moves(key, slot, CROP, FLIP)
    for start in range(0, FEATURES, BLOCK):
        feature = start + tl.arange(0, BLOCK)
        value = draws.inputs(
            stored, sample, feature, known & (feature < FEATURES), down, right, mirrored, factor, offset,
            HEIGHT, WIDTH, FEATURES, CHANNELS, CROP > 0 or FLIP,
        )  # fmt: skip
        tl.store(x + (job * BATCH + slot) * FEATURES + feature, value, mask=feature < FEATURES)


def prepare(work: Work, cursor: Tensor, ahead: int, affine: tuple[Tensor, Tensor], x: Tensor, y: Tensor) -> None:
    """Writes the batches of step `cursor[0] + ahead` of every job that still has one.

    `cursor` is an int64 tensor of one element on the device, so the launch may stand in a CUDA graph; `affine` is
    `work.affine()`. `x` float32 [J, B, C, H, W] receives the inputs (zeros in empty slots), `y` int32 [J, B] the labels
    (-1 in empty slots). Rows of jobs without such a step stay as they are. The inputs are those of
    `Inputs.prepare(Inputs.crop_and_flip(...))`, to the bit.
    """
    jobs, most, batch = work.index.shape
    channels, height, width = work.image
    features = channels * height * width
    block = min(1024, triton.next_power_of_2(features))
    keys = work.augment_keys if work.augment_keys is not None else work.index
    _prepare[(jobs, batch)](
        work.x, work.y, work.index, work.steps, cursor, keys, *affine, x, y, ahead, most,
        batch, features, height, width, channels, work.inputs.crop, work.inputs.flip, block,
        num_warps=4, enable_fp_fusion=False,
    )  # fmt: skip


def empty_batch(work: Work) -> tuple[Tensor, Tensor]:
    """Room for one step's inputs and labels of all jobs, as `prepare` fills it."""
    jobs, _, batch = work.index.shape
    x = torch.zeros(jobs, batch, *work.image, device=work.x.device)
    return x, torch.full((jobs, batch), -1, dtype=torch.int32, device=work.x.device)
