"""How exactly a GPU multiplies: TF32 switched on or off for a while, and put back as the caller had it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ccfed.training.engine import Precision


@contextmanager
def multiplying(device: torch.device, precision: Precision) -> Iterator[None]:
    """Inside this context float32 products on a GPU are as exact as `precision` says: true float32, or else TF32.

    Without it PyTorch would use TF32 for convolutions, but not for matrices. A processor always multiplies in float32.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    _allow(*(2 * (precision != "float32",)))
    try:
        yield
    finally:
        _allow(*before)


def _allow(matrices: bool, convolutions: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = matrices
    torch.backends.cudnn.allow_tf32 = convolutions
