# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""All local steps of a two-layer perceptron in one launch: one program a job, its weights in the second-level cache."""

from dataclasses import dataclass
from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from ccfed.training.kernels import draws
from ccfed.training.kernels.work import Work

Precision = Literal["ieee", "tf32x3", "tf32"]


@dataclass(frozen=True)
class Perceptron:
    """Linear(features, hidden), Dropout(drop), ReLU, Linear(hidden, classes): the flat parameters in that order."""

    features: int
    hidden: int
    classes: int
    drop: float = 0.0

    @property
    def parameters(self) -> int:
        """The number of parameters P: two weights [out, in], each followed by its bias."""
        return self.features * self.hidden + self.hidden + self.hidden * self.classes + self.classes

    def refusal(self, batch: int) -> str | None:
        """Why the kernel does not take this perceptron with batches of `batch`, or None."""
        for name, size, most in (("hidden", self.hidden, 128), ("classes", self.classes, 128), ("batch", batch, 128)):
            if size > most:
                return f"{name} is {size}; the fused perceptron takes at most {most}"
        return None


@triton.jit
def _train(
    weights, stored, labels, index, steps, rates, augment_keys, dropout_keys, factor, offset, losses,
    most,
    BATCH: tl.constexpr, FEATURES: tl.constexpr, HIDDEN: tl.constexpr, CLASSES: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, CROP: tl.constexpr, FLIP: tl.constexpr,
    THRESHOLD: tl.constexpr, GAIN: tl.constexpr, PRECISION: tl.constexpr,
    SLOTS: tl.constexpr, UNITS: tl.constexpr, NAMES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    BIAS_1: tl.constexpr = FEATURES * HIDDEN
    WEIGHT_2: tl.constexpr = BIAS_1 + HIDDEN
    BIAS_2: tl.constexpr = WEIGHT_2 + HIDDEN * CLASSES
    MOVES: tl.constexpr = CROP > 0 or FLIP
    job = tl.program_id(0).to(tl.int64)
    weights += job * (BIAS_2 + CLASSES)
    index += job * most * BATCH
    last = tl.load(steps + job).to(tl.int32)
    if last <= 0:
        tl.store(losses + job, 0.0)
        return
    rate = tl.load(rates + job)

    slot = tl.arange(0, SLOTS)
    unit = tl.arange(0, UNITS)
    name = tl.arange(0, NAMES)
    column = tl.arange(0, BLOCK)
    bias_1 = tl.load(weights + BIAS_1 + unit, mask=unit < HIDDEN, other=0.0)
    bias_2 = tl.load(weights + BIAS_2 + name, mask=name < CLASSES, other=0.0)
    place_2 = WEIGHT_2 + name[:, None] * HIDDEN + unit[None, :]
    real_2 = (name < CLASSES)[:, None] & (unit < HIDDEN)[None, :]
    weight_2 = tl.load(weights + place_2, mask=real_2, other=0.0)

    loss = 0.0
    sample = tl.load(index + slot, mask=slot < BATCH, other=-1)
    key = tl.zeros([1], tl.int64)
    if MOVES:
        key += tl.load(augment_keys + job * most)
    down, right, mirrored = draws.moves(key, slot, CROP, FLIP)
    ahead = tl.zeros([SLOTS, UNITS], tl.float32)
    for start in range(0, FEATURES, BLOCK):
        feature = start + column
        real = feature < FEATURES
        x = draws.inputs(
            stored, sample[:, None], feature[None, :], (sample >= 0)[:, None] & real[None, :],
            down[:, None], right[:, None], mirrored[:, None], factor, offset,
            HEIGHT, WIDTH, FEATURES, CHANNELS, MOVES,
        )  # fmt: skip
        place = unit[:, None] * FEATURES + feature[None, :]
        weight = tl.load(weights + place, mask=(unit < HIDDEN)[:, None] & real[None, :], other=0.0)
        ahead = tl.dot(x, tl.trans(weight), ahead, input_precision=PRECISION)

    for step in range(last):
        more = (slot * 0 + step + 1) < last
        next_sample = tl.load(index + (step + 1) * BATCH + slot, mask=(slot < BATCH) & more, other=-1)
        next_key = tl.zeros([1], tl.int64)
        if MOVES:
            next_key += tl.load(augment_keys + job * most + tl.minimum(step + 1, last - 1))
        next_down, next_right, next_mirrored = draws.moves(next_key, slot, CROP, FLIP)

        filled = sample >= 0
        label = tl.load(labels + sample, mask=filled, other=0).to(tl.int32)
        share = 1.0 / tl.maximum(tl.sum(filled.to(tl.float32), 0), 1.0)
        hidden = ahead + bias_1[None, :]
        if THRESHOLD > 0:
            mask_key = tl.load(dropout_keys + job * most + step) + tl.zeros([1, 1], tl.int64)
            keep = draws.kept(mask_key, slot[:, None] * HIDDEN + unit[None, :], THRESHOLD)
            hidden = tl.where(keep, hidden * GAIN, 0.0)
        hidden = tl.where(hidden <= 0.0, 0.0, hidden)  # a NaN stays a NaN
        logits = tl.dot(hidden, tl.trans(weight_2), input_precision=PRECISION) + bias_2[None, :]
        logits = tl.where((name < CLASSES)[None, :], logits, float("-inf"))
        top = tl.max(logits, 1)
        power = tl.exp(logits - top[:, None])
        total = tl.sum(power, 1)
        right_one = name[None, :] == label[:, None]
        cost = tl.log(total) + top - tl.sum(tl.where(right_one, logits, 0.0), 1)
        loss += tl.sum(tl.where(filled, cost, 0.0), 0) * share

        error_2 = (power / total[:, None] - right_one.to(tl.float32)) * share
        error_2 = tl.where(filled[:, None], error_2, 0.0)
        error_1 = tl.dot(error_2, weight_2, input_precision=PRECISION)
        error_1 = tl.where(hidden > 0.0, error_1 * GAIN, 0.0)
        weight_2 -= rate * tl.dot(tl.trans(error_2), hidden, input_precision=PRECISION)
        bias_2 -= rate * tl.sum(error_2, 0)
        bias_1 -= rate * tl.sum(error_1, 0)
        scaled = tl.trans(error_1 * rate)

        # One pass over the first weight: this step's gradient and update, and the next step's forward product.
        ahead = tl.zeros([SLOTS, UNITS], tl.float32)
        for start in range(0, FEATURES, BLOCK):
            feature = start + column
            real = feature < FEATURES
            x = draws.inputs(
                stored, sample[:, None], feature[None, :], filled[:, None] & real[None, :],
                down[:, None], right[:, None], mirrored[:, None], factor, offset,
                HEIGHT, WIDTH, FEATURES, CHANNELS, MOVES,
            )  # fmt: skip
            next_x = draws.inputs(
                stored, next_sample[:, None], feature[None, :], (next_sample >= 0)[:, None] & real[None, :],
                next_down[:, None], next_right[:, None], next_mirrored[:, None], factor, offset,
                HEIGHT, WIDTH, FEATURES, CHANNELS, MOVES,
            )  # fmt: skip
            place = unit[:, None] * FEATURES + feature[None, :]
            here = (unit < HIDDEN)[:, None] & real[None, :]
            weight = tl.load(weights + place, mask=here, other=0.0)
            weight -= tl.dot(scaled, x, input_precision=PRECISION)
            tl.store(weights + place, weight, mask=here)
            ahead = tl.dot(next_x, tl.trans(weight), ahead, input_precision=PRECISION)
        # The next pass may read a weight in another thread than the one that wrote it.
        tl.debug_barrier()
        sample = next_sample
        down = next_down
        right = next_right
        mirrored = next_mirrored

    tl.store(weights + BIAS_1 + unit, bias_1, mask=unit < HIDDEN)
    tl.store(weights + BIAS_2 + name, bias_2, mask=name < CLASSES)
    tl.store(weights + place_2, weight_2, mask=real_2)
    tl.store(losses + job, loss)


def perceptron_steps(
    params: Tensor,
    model: Perceptron,
    work: Work,
    precision: Precision = "ieee",
    block: int = 64,
    warps: int = 4,
    stages: int = 3,
) -> Tensor:
    """Makes all steps of `work` in one launch; changes `params` (float32 [J, P]) in place.

    Returns each job's sum over its steps of the mean training loss, before the step: float32 [J]. Dropout keeps unit h
    of slot b in step k where `streams.keep_mask(dropout_keys[j, k], B * hidden, drop)[b * hidden + h]` says so. A job's
    result does not depend on the others. `precision` is that of the products: "ieee" float32, "tf32x3" (as good
    within a few units of the last place, on the matrix units) or "tf32".
    """
    work.check()
    jobs, most, batch = work.index.shape
    channels, height, width = work.image
    if refusal := model.refusal(batch):
        raise ValueError(refusal)
    if params.shape != (jobs, model.parameters) or params.dtype != torch.float32 or not params.is_contiguous():
        raise ValueError(f"params must be contiguous float32 of shape ({jobs}, {model.parameters})")
    if model.features != channels * height * width:
        raise ValueError(f"the samples have {channels * height * width} features, the perceptron {model.features}")
    if model.drop and work.dropout_keys is None:
        raise ValueError("dropout_keys is missing although the perceptron has dropout")
    losses = torch.empty(jobs, device=params.device)
    no_keys = work.index
    _train[(jobs,)](
        params, work.x, work.y, work.index, work.steps, work.lr,
        no_keys if work.augment_keys is None else work.augment_keys,
        no_keys if work.dropout_keys is None else work.dropout_keys,
        *work.affine(), losses, most,
        batch, model.features, model.hidden, model.classes, height, width, channels,
        work.inputs.crop, work.inputs.flip, round(model.drop * 65536), 1.0 / (1.0 - model.drop), precision,
        max(16, triton.next_power_of_2(batch)), max(16, triton.next_power_of_2(model.hidden)),
        max(16, triton.next_power_of_2(model.classes)), block,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return losses
