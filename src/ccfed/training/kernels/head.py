# mypy: allow-untyped-defs, allow-untyped-calls, allow-untyped-decorators
"""The Linear layers at the end of a network: forward, cross entropy, backward and update of a job in one program."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from ccfed.training.kernels.perceptron import Precision

BLOCK = 32


@triton.jit
def _step(
    features, labels, weights, error, room, rates, losses, steps, cursor, ahead, params_stride,
    BATCH: tl.constexpr, INPUTS: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, CLASSES: tl.constexpr,
    SLOTS: tl.constexpr, FIRST_2: tl.constexpr, SECOND_2: tl.constexpr, NAMES: tl.constexpr, BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    job = tl.program_id(0).to(tl.int64)
    if tl.load(cursor).to(tl.int32) + ahead >= tl.load(steps + job):
        return
    BIAS_1: tl.constexpr = INPUTS * FIRST
    WEIGHT_2: tl.constexpr = BIAS_1 + FIRST
    BIAS_2: tl.constexpr = WEIGHT_2 + FIRST * SECOND
    WEIGHT_3: tl.constexpr = BIAS_2 + SECOND
    BIAS_3: tl.constexpr = WEIGHT_3 + SECOND * CLASSES
    weights += job * params_stride
    features += job * (BATCH * INPUTS)
    error += job * (BATCH * INPUTS)
    room += job * (SLOTS * FIRST_2)
    rate = tl.load(rates + job)
    slot = tl.arange(0, SLOTS)
    one = tl.arange(0, FIRST_2)
    two = tl.arange(0, SECOND_2)
    name = tl.arange(0, NAMES)
    column = tl.arange(0, BLOCK)

    bias_1 = tl.load(weights + BIAS_1 + one, mask=one < FIRST, other=0.0)
    bias_2 = tl.load(weights + BIAS_2 + two, mask=two < SECOND, other=0.0)
    bias_3 = tl.load(weights + BIAS_3 + name, mask=name < CLASSES, other=0.0)
    place_3 = weights + WEIGHT_3 + name[:, None] * SECOND + two[None, :]
    real_3 = (name < CLASSES)[:, None] & (two < SECOND)[None, :]

    hidden_1 = tl.zeros([SLOTS, FIRST_2], tl.float32)
    for start in range(0, INPUTS, BLOCK):
        at = start + column
        values = tl.load(
            features + slot[:, None] * INPUTS + at[None, :],
            mask=(slot < BATCH)[:, None] & (at < INPUTS)[None, :],
            other=0.0,
        )
        weight = tl.load(
            weights + one[:, None] * INPUTS + at[None, :],
            mask=(one < FIRST)[:, None] & (at < INPUTS)[None, :],
            other=0.0,
        )
        hidden_1 = tl.dot(values, tl.trans(weight), hidden_1, input_precision=PRECISION)
    hidden_1 += bias_1[None, :]
    hidden_1 = tl.where(hidden_1 <= 0.0, 0.0, hidden_1)  # a NaN stays a NaN
    tl.store(room + slot[:, None] * FIRST_2 + one[None, :], hidden_1)
    tl.debug_barrier()  # other threads read it below
    hidden_2 = tl.zeros([SLOTS, SECOND_2], tl.float32)
    for start in range(0, FIRST, BLOCK):
        at = start + column
        values = tl.load(room + slot[:, None] * FIRST_2 + at[None, :])
        real = (two < SECOND)[:, None] & (at < FIRST)[None, :]
        weight = tl.load(weights + WEIGHT_2 + two[:, None] * FIRST + at[None, :], mask=real, other=0.0)
        hidden_2 = tl.dot(values, tl.trans(weight), hidden_2, input_precision=PRECISION)
    hidden_2 += bias_2[None, :]
    hidden_2 = tl.where(hidden_2 <= 0.0, 0.0, hidden_2)
    weight_3 = tl.load(place_3, mask=real_3, other=0.0)
    logits = tl.dot(hidden_2, tl.trans(weight_3), input_precision=PRECISION) + bias_3[None, :]
    logits = tl.where((name < CLASSES)[None, :], logits, float("-inf"))

    label = tl.load(labels + job * BATCH + slot, mask=slot < BATCH, other=-1)
    filled = label >= 0
    share = 1.0 / tl.maximum(tl.sum(filled.to(tl.float32), 0), 1.0)
    top = tl.max(logits, 1)
    power = tl.exp(logits - top[:, None])
    total = tl.sum(power, 1)
    right = name[None, :] == label[:, None]
    cost = tl.log(total) + top - tl.sum(tl.where(right, logits, 0.0), 1)
    loss = tl.sum(tl.where(filled, cost, 0.0), 0) * share
    tl.store(losses + job, tl.load(losses + job) + loss)

    error_3 = (power / total[:, None] - right.to(tl.float32)) * share
    error_3 = tl.where(filled[:, None], error_3, 0.0)
    error_2 = tl.where(hidden_2 > 0.0, tl.dot(error_3, weight_3, input_precision=PRECISION), 0.0)
    weight_3 -= rate * tl.dot(tl.trans(error_3), hidden_2, input_precision=PRECISION)
    tl.store(place_3, weight_3, mask=real_3)
    tl.store(weights + BIAS_3 + name, bias_3 - rate * tl.sum(error_3, 0), mask=name < CLASSES)
    tl.store(weights + BIAS_2 + two, bias_2 - rate * tl.sum(error_2, 0), mask=two < SECOND)
    scaled_2 = tl.trans(error_2 * rate)
    for start in range(0, FIRST, BLOCK):
        at = start + column
        values = tl.load(room + slot[:, None] * FIRST_2 + at[None, :])
        real = (two < SECOND)[:, None] & (at < FIRST)[None, :]
        weight = tl.load(weights + WEIGHT_2 + two[:, None] * FIRST + at[None, :], mask=real, other=0.0)
        back = tl.where(values > 0.0, tl.dot(error_2, weight, input_precision=PRECISION), 0.0)
        bias = tl.load(weights + BIAS_1 + at, mask=at < FIRST, other=0.0)
        weight -= tl.dot(scaled_2, values, input_precision=PRECISION)
        tl.debug_barrier()  # the hidden values are read; their errors take their place
        tl.store(room + slot[:, None] * FIRST_2 + at[None, :], back)
        tl.store(weights + WEIGHT_2 + two[:, None] * FIRST + at[None, :], weight, mask=real)
        tl.store(weights + BIAS_1 + at, bias - rate * tl.sum(back, 0), mask=at < FIRST)
    tl.debug_barrier()
    error_1 = tl.load(room + slot[:, None] * FIRST_2 + one[None, :])
    scaled = tl.trans(error_1 * rate)
    for start in range(0, INPUTS, BLOCK):
        at = start + column
        seen = (slot < BATCH)[:, None] & (at < INPUTS)[None, :]
        values = tl.load(features + slot[:, None] * INPUTS + at[None, :], mask=seen, other=0.0)
        here = (one < FIRST)[:, None] & (at < INPUTS)[None, :]
        weight = tl.load(weights + one[:, None] * INPUTS + at[None, :], mask=here, other=0.0)
        back = tl.dot(error_1, weight, input_precision=PRECISION)
        tl.store(error + slot[:, None] * INPUTS + at[None, :], back, mask=seen)
        weight -= tl.dot(scaled, values, input_precision=PRECISION)
        tl.store(weights + one[:, None] * INPUTS + at[None, :], weight, mask=here)


def step(
    features: Tensor, labels: Tensor, params: Tensor, offset: int, widths: tuple[int, int, int, int], error: Tensor,
    room: Tensor, lr: Tensor, losses: Tensor, steps: Tensor, cursor: Tensor, ahead: int, precision: Precision,
) -> None:  # fmt: skip
    """One step of SGD for Linear(w0, w1), ReLU, Linear(w1, w2), ReLU, Linear(w2, w3), cross entropy, of all jobs.

    `features` [J, B, w0] (any shape behind B), `labels` int32 [J, B] with -1 for empty slots; the layers' parameters
    lie in `params` [J, P] from `offset` on and are changed in place. The gradient with respect to `features` goes to
    `error`, of its shape; `room` is scratch memory (`room_for`); the mean loss is added to `losses` [J]. Jobs for which
    `cursor[0] + ahead >= steps[j]` are left alone.
    """
    jobs, batch = labels.shape
    inputs, first, second, classes = widths
    padded = (padded_size(size) for size in (batch, first, second, classes))
    _step[(jobs,)](
        features, labels, params[:, offset:], error, room, lr, losses, steps, cursor, ahead, params.shape[1],
        batch, inputs, first, second, classes, *padded, BLOCK, precision, num_warps=8, num_stages=2,
    )  # fmt: skip


def padded_size(size: int) -> int:
    """The side of the tile that holds `size` entries."""
    return int(max(BLOCK, triton.next_power_of_2(size)))


def room_for(jobs: int, batch: int, first: int, device: torch.device) -> Tensor:
    """Scratch memory of `step` for the first layer's hidden values, and then their errors, of all jobs."""
    return torch.zeros(jobs, padded_size(batch), padded_size(first), device=device)
