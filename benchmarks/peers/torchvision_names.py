"""Lets `import torchvision` work where its compiled part does not (a CPU build of PyTorch): import this one first.

Two operators are described to PyTorch when torchvision is imported, and the description needs their names to exist.
No peer calls them. Where torchvision is whole, nothing is done.
"""

import torch

try:
    import torchvision  # noqa: F401
except RuntimeError:
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float limit) -> Tensor")
