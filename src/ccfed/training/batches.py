"""Which samples make up which batch: a pure function of the client's stream and of how many steps it has made.

A client deals its shuffled samples out in batches, the last of an epoch being short, and goes on in the next round
where it stopped in this one. Its n-th step of all time is thus batch n mod E of epoch n // E, with E batches to the
epoch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ccfed.algorithm import streams

EPOCH = streams.purpose("epoch")
AUGMENT = streams.purpose("augment")
DROPOUT = streams.purpose("dropout")

# Shuffling sorts one random number a sample; at most this many at once, to bound its memory.
SORTED_AT_ONCE = 2**25


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """`samples` [J, K, B] int32: the index of the sample in each slot, -1 where the slot is empty; `filled` [J, K]
    int64."""

    samples: Tensor
    filled: Tensor


def augment_key(key: Tensor, step: Tensor | int) -> Tensor:
    """The stream of crops and flips of a client's n-th step."""
    return streams.fold(key, AUGMENT, step)


def dropout_key(key: Tensor, step: Tensor | int) -> Tensor:
    """The stream of dropout of a client's n-th step."""
    return streams.fold(key, DROPOUT, step)


def plan(
    members: Tensor, offset: Tensor, size: Tensor, key: Tensor, first: Tensor, steps: int, batch_size: int
) -> BatchPlan:
    """The batches of steps first .. first + `steps` - 1 of J clients, on the device of `members`.

    `offset`, `size`, `key` and `first` are int64 [J] on the host; client j's samples are `members[offset:offset +
    size]`.
    """
    device = members.device
    jobs = len(size)
    if jobs == 0 or steps == 0:
        return BatchPlan(
            torch.full((jobs, steps, batch_size), -1, dtype=torch.int32, device=device),
            torch.zeros(jobs, steps, dtype=torch.int64, device=device),
        )
    per_epoch = -(-size // batch_size)
    epochs = (first + steps - 1) // per_epoch - first // per_epoch + 1
    each = torch.stack([offset, size, key, first, per_epoch]).to(device)  # in one copy
    widest, most = int(size.max()), int(epochs.max())
    if jobs * widest * most <= SORTED_AT_ONCE:
        return _plan_alike(members, *each, widest=widest, most=most, steps=steps, batch_size=batch_size)
    samples = torch.full((jobs, steps, batch_size), -1, dtype=torch.int32, device=device)
    filled = torch.zeros(jobs, steps, dtype=torch.int64, device=device)
    # Clients of like size and number of epochs go together, so that little of the sorted table is padding.
    order = (epochs * size).argsort(stable=True)
    sizes, lengths = size[order].tolist(), epochs[order].tolist()
    start = 0
    while start < jobs:
        end, widest, most = start + 1, sizes[start], lengths[start]
        while end < jobs:
            wider, more = max(widest, sizes[end]), max(most, lengths[end])
            if (end + 1 - start) * wider * more > SORTED_AT_ONCE:
                break
            widest, most, end = wider, more, end + 1
        where = order[start:end].to(device)
        part = _plan_alike(members, *each[:, where], widest=widest, most=most, steps=steps, batch_size=batch_size)
        samples[where], filled[where] = part.samples, part.filled
        start = end
    return BatchPlan(samples, filled)


def _plan_alike(
    members: Tensor,
    offset: Tensor,
    size: Tensor,
    key: Tensor,
    first: Tensor,
    per_epoch: Tensor,
    *,
    widest: int,
    most: int,
    steps: int,
    batch_size: int,
) -> BatchPlan:
    device = members.device
    jobs = len(size)
    step = first[:, None] + torch.arange(steps, device=device)
    epoch, batch = step // per_epoch[:, None], step % per_epoch[:, None]
    first_epoch = epoch[:, :1]
    keys = streams.fold(key[:, None], EPOCH, first_epoch + torch.arange(most, device=device))
    places = torch.arange(widest, device=device)
    draws = streams.bits(keys[..., None], places)
    draws = draws.masked_fill(places >= size[:, None, None], torch.iinfo(torch.int64).max)
    shuffled = draws.argsort(dim=-1, stable=True)  # [J, epochs, widest]
    slot = batch[..., None] * batch_size + torch.arange(batch_size, device=device)
    inside = slot < size[:, None, None]
    flat = (epoch - first_epoch)[..., None] * widest + slot.clamp(max=widest - 1)
    within = shuffled.view(jobs, -1).gather(1, flat.view(jobs, -1)).view(flat.shape)
    source = (offset[:, None, None] + within).clamp(max=len(members) - 1)
    samples = torch.where(inside, members[source], -1).to(torch.int32)
    return BatchPlan(samples, inside.sum(-1))
