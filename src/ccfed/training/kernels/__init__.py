"""Triton kernels for the layers that vmap runs slowly, and whole training loops of small networks in few launches.

Importing this package needs neither Triton nor a GPU. Ask `available(device)` first; then

- `fuse(module, sample_shape, batch_size, precision)` gives the fused training steps of a network that has them, or
  None; `work_of(task, jobs, dealt, drops)` says what they shall do, and `Fused.run(params, work)` does it;
- `stack_convolutions(module)` makes the convolutions of any network fast under `torch.func.vmap`;
- `normalise_densely(module)` makes group normalisation fast in any layout, without vmap.
"""

import importlib.util
import os
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ccfed.training.kernels.convolution import StackedConv2d, convolve, stack_convolutions
    from ccfed.training.kernels.fused import Fused, fuse, recognise
    from ccfed.training.kernels.normalise import DenseGroupNorm, normalise_densely
    from ccfed.training.kernels.work import Work, work_of

__all__ = [
    "DenseGroupNorm",
    "Fused",
    "StackedConv2d",
    "Work",
    "available",
    "convolve",
    "fuse",
    "normalise_densely",
    "recognise",
    "stack_convolutions",
    "work_of",
]

_ROOMS = {
    "convolution": ("StackedConv2d", "convolve", "stack_convolutions"),
    "fused": ("Fused", "fuse", "recognise"),
    "normalise": ("DenseGroupNorm", "normalise_densely"),
    "work": ("Work", "work_of"),
}


def available(device: torch.device | str) -> bool:
    """Whether the kernels run on `device`: an NVIDIA GPU of compute capability 8.0 or more, with Triton installed.

    With TRITON_INTERPRET=1 in the environment they also run on the CPU, very slowly, for tests.
    """
    device = torch.device(device)
    if importlib.util.find_spec("triton") is None:
        return False
    if os.environ.get("TRITON_INTERPRET") == "1":
        return device.type == "cpu"
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)


def __getattr__(name: str) -> Any:
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{room}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
