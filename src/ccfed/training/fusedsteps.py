"""The stepper for networks that have fused kernels of their own: a perceptron, or convolutions of the LeNet family."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ccfed.training import kernels
from ccfed.training.batches import BatchPlan
from ccfed.training.captured import CapturedModule
from ccfed.training.engine import Jobs, Precision, Task
from ccfed.training.trying import agrees, scores_agree

if TYPE_CHECKING:
    from ccfed.training.kernels import Fused
    from ccfed.training.kernels.perceptron import Precision as Products


class FusedSteps(CapturedModule):
    """All steps of all jobs in a few launches; what is not training (the test) goes as for any module."""

    name = "fused kernels"

    def __init__(self, task: Task, precision: Precision, fused: "Fused", stacked: bool = True) -> None:
        super().__init__(task, precision, stacked)
        self.fused = fused

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """Hands all steps to the kernels; the host does not wait."""
        return self.fused.run(params, kernels.work_of(self.task, jobs, dealt, self.fused.drops))

    def bytes_for_a_job(self, steps: int) -> int:
        """Parameters in and out, the batches' indices and keys, and about two prepared batches."""
        task = self.task
        return 4 * (3 * task.network.size + 2 * task.batch_size * self.values.all) + 60 * steps * task.batch_size

    def release(self) -> None:
        """Drops the kernels' buffers and graphs."""
        super().release()
        self.fused.release()


def fused_steps(task: Task, precision: Precision) -> FusedSteps | None:
    """The fused stepper for the task's network, where there is one and it proves right."""
    fits = task.dtype == torch.float32 and task.train_x.dtype in (torch.uint8, torch.float32)
    if not fits or not kernels.available(task.device):
        return None
    # As good as float32 within a few units of the last place, and on the matrix units.
    products: Products = "tf32x3" if precision == "float32" else "tf32"
    fused = kernels.fuse(task.network.module, task.sample_shape, task.batch_size, products)
    if fused is None:
        return None
    stepper = FusedSteps(task, precision, fused)
    if not agrees(task, stepper, precision):
        return None
    if stepper.stacked and not scores_agree(task, stepper):
        return FusedSteps(task, precision, fused, stacked=False)
    return stepper
