"""How a GPU multiplies: TF32 switched on or off for a while, the same bits each time, and all put back afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ccfed.training.engine import Precision


@contextmanager
def multiplying(device: torch.device, precision: Precision) -> Iterator[None]:
    """Inside this context float32 products on a GPU are as exact as `precision` says: true float32, or else TF32.

    Without it PyTorch would use TF32 for convolutions, but not for matrices, and convolutions whose gradients differ
    from call to call. A processor always multiplies in float32.
    """
    if device.type != "cuda":
        yield
        return
    before = _allow(precision != "float32", precision != "float32", True)
    try:
        yield
    finally:
        _allow(*before)


def _allow(matrices: bool, convolutions: bool, repeatable: bool) -> tuple[bool, bool, bool]:
    """Sets what is allowed, and gives what was."""
    cublas, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = cublas.allow_tf32, cudnn.allow_tf32, cudnn.deterministic
    cublas.allow_tf32, cudnn.allow_tf32, cudnn.deterministic = matrices, convolutions, repeatable
    return before
