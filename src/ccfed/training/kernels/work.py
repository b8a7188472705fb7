"""What the fused kernels are asked to do: whose samples, in which order, with which draws."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ccfed.algorithm import streams
from ccfed.data.inputs import Inputs
from ccfed.training import batches
from ccfed.training.batches import BatchPlan
from ccfed.training.engine import Jobs, Task


@dataclass(frozen=True, eq=False)
class Work:
    """The local steps of J jobs: every tensor on one device, none of them changed.

    `x` uint8 or float32 [n, C, H, W] (or [n, features]) and `y` int64 [n] are the stored samples that all jobs share.
    `index` int32 or int64 [J, K, B] says which sample lies in which slot of which step, -1 for an empty slot; the loss
    of a step is the mean over its filled slots, and a step without any changes nothing. Job j makes its first
    `steps[j]` (int32 or int64 [J], at most K) steps with learning rate `lr[j]` (float32 [J]). The draws of step k come
    from the streams `augment_keys[j, k]` (crop and flip) and `dropout_keys[j, k]` (both int64 [J, K]); either may be
    None where nothing is drawn.
    """

    x: Tensor
    y: Tensor
    index: Tensor
    steps: Tensor
    lr: Tensor
    inputs: Inputs
    augment_keys: Tensor | None = None
    dropout_keys: Tensor | None = None

    @property
    def jobs(self) -> int:
        """The number of jobs J."""
        return self.index.shape[0]

    @property
    def image(self) -> tuple[int, int, int]:
        """(C, H, W) of a stored sample; a flat sample of n features is (1, 1, n)."""
        shape = tuple(self.x.shape[1:])
        if len(shape) == 3:
            return (shape[0], shape[1], shape[2])
        return (1, *shape) if len(shape) == 2 else (1, 1, shape[0])

    def affine(self) -> tuple[Tensor, Tensor]:
        """`factor` and `offset` (float32, one entry a channel of `image`): the input is `stored * factor - offset`."""
        channels, device = self.image[0], self.x.device
        std = torch.tensor(self.inputs.std, dtype=torch.float32)
        factor = self.inputs.scale / std
        offset = torch.tensor(self.inputs.mean, dtype=torch.float32) * factor / self.inputs.scale
        return factor.expand(channels).contiguous().to(device), offset.expand(channels).contiguous().to(device)

    def check(self) -> None:
        """Refuses shapes and types that the kernels would misread."""
        jobs, most, _ = self.index.shape
        if self.x.dtype not in (torch.uint8, torch.float32):
            raise ValueError(f"stored samples must be uint8 or float32 for the fused kernels, not {self.x.dtype}")
        if self.steps.shape != (jobs,) or self.lr.shape != (jobs,):
            raise ValueError(f"steps and lr must have one entry for each of the {jobs} jobs")
        if self.inputs.augments and self.augment_keys is None:
            raise ValueError("augment_keys is missing although the inputs are cropped or flipped")
        for keys in (self.augment_keys, self.dropout_keys):
            if keys is not None and (keys.shape != (jobs, most) or keys.dtype != torch.int64):
                raise ValueError(f"stream keys must be int64 of shape ({jobs}, {most}), not {tuple(keys.shape)}")
        tensors = (self.x, self.y, self.index, self.steps, self.lr, self.augment_keys, self.dropout_keys)
        if not all(tensor.is_contiguous() for tensor in tensors if tensor is not None):
            raise ValueError("the tensors of a Work must be contiguous")


def work_of(task: Task, jobs: Jobs, dealt: BatchPlan, drops: bool) -> Work:
    """The work of `jobs`, whose batches are `dealt`: the same draws as the reference engine's.

    `drops` says whether the network has dropout, of which the fused kernels take one layer.
    """
    device = task.device
    step = jobs.first[:, None] + torch.arange(dealt.samples.shape[1])
    keys = (jobs.key[:, None].to(device), step.to(device))
    return Work(
        task.train_x,
        task.train_y,
        dealt.samples,
        jobs.steps.to(device, torch.int32),
        jobs.lr.to(device, torch.float32),
        task.inputs,
        batches.augment_key(*keys) if task.inputs.augments else None,
        streams.fold(batches.dropout_key(*keys), 0) if drops else None,
    )
