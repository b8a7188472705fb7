"""The general stepper: any nn.Module, by `torch.func.vmap` over its parameters."""

import copy

import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from ccfed.training import batches
from ccfed.training.batches import BatchPlan
from ccfed.training.dropout import StreamedDropout
from ccfed.training.engine import Jobs, Task
from ccfed.training.stepping import at_work, evaluate_in_pieces, inputs_of_step, values_per_sample


class AnyModule:
    """The general stepper: gradients of all jobs by vmap over the module's parameters."""

    name = "vmap over the module"

    def __init__(self, task: Task) -> None:
        self.task = task
        # A copy, as `functional_call` may leave its parameters in a module: it does where a part is used twice.
        self.module = copy.deepcopy(task.network.module).to(task.device, task.dtype)
        self.gradients = vmap(grad_and_value(self._loss), randomness="error")
        self.scores = vmap(self._scores, in_dims=(0, None))
        self.values = values_per_sample(task)

    def _loss(self, params: dict[str, Tensor], x: Tensor, y: Tensor, weight: Tensor, key: Tensor) -> Tensor:
        with StreamedDropout(key):
            scores = functional_call(self.module, params, (x,))
        return (F.cross_entropy(scores, y, reduction="none") * weight).sum()

    def _scores(self, params: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(self.module, params, (x,))  # type: ignore[no-any-return]

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """One vmapped gradient a step, subtracted in place."""
        task = self.task
        self.module.train()
        total = params.new_zeros(len(params))
        lr = jobs.lr.to(params.device, params.dtype)
        for k, active in at_work(jobs.steps):
            x, y, filled = inputs_of_step(task, jobs, dealt, k, active)
            weight = filled.to(task.dtype) / filled.sum(1, keepdim=True)
            key = batches.dropout_key(jobs.key[:active], jobs.first[:active] + k).to(params.device)
            views = task.network.views(params[:active])
            gradients, loss = self.gradients(views, x, y, weight, key)
            for name, view in views.items():
                rate = lr[:active].view(-1, *(1 for _ in view.shape[1:]))
                view -= rate * gradients[name]
            total[:active] += loss
        return total

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Many models at once on pieces of the test samples."""
        self.module.eval()
        views = self.task.network.views
        return evaluate_in_pieces(self.task, models, lambda some, x: self.scores(views(some), x), self.values)

    def bytes_for_a_job(self, steps: int) -> int:
        """Parameters and gradients a few times over, and what the layers keep for the way back."""
        task = self.task
        return (6 * task.network.size + 4 * task.batch_size * self.values.all) * task.dtype.itemsize + (
            40 * steps * task.batch_size
        )

    def release(self) -> None:
        """Nothing is kept."""
