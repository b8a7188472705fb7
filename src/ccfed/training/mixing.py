"""Whether a network looks at the other samples of a batch: then clients' batches cannot be padded side by side."""

import copy

import torch

from ccfed.training.dropout import StreamedDropout
from ccfed.training.engine import Task


def mixes_samples(task: Task) -> bool:
    """Whether the scores of a sample depend on its neighbours in the batch, as with BatchNorm, found by trying.

    The shorter last batches of an epoch are padded where many clients are stepped at once, which such a network would
    notice.
    """
    module = copy.deepcopy(task.network.module).to(task.device, task.dtype).train()
    some = task.train_x[: min(3, len(task.train_x))]
    x = task.inputs.prepare(some, task.dtype)
    first, other = x[[0, 0]], x[[0, -1]]
    if len(some) < 2 or torch.equal(first, other):
        return False
    key = torch.zeros((), dtype=torch.int64, device=task.device)
    with torch.no_grad():
        with StreamedDropout(key):
            beside_itself = module(first)[0]
        with StreamedDropout(key):
            beside_another = module(other)[0]
    return not torch.allclose(beside_itself, beside_another, rtol=1e-3, atol=1e-5)
