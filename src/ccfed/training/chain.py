"""The stepper for chains of common layers: no automatic differentiation, no gradients stored."""

import torch.nn.functional as F
from torch import Tensor

from ccfed.training import batches
from ccfed.training.batches import BatchPlan
from ccfed.training.engine import Jobs, Task
from ccfed.training.layers import Layer, Params
from ccfed.training.stepping import at_work, evaluate_in_pieces, inputs_of_step


class Chain:
    """Steps a chain of layers for J jobs side by side, forward and backward by hand."""

    name = "chain of layers"

    def __init__(self, task: Task, layers: list[Layer]) -> None:
        self.task, self.layers = task, layers
        # What comes before the first layer that trains need not hear of the errors behind it.
        self.first = next((i for i, layer in enumerate(layers) if layer.trains), len(layers))

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """Makes all steps on `params` [J, parameters] in place; returns the sum of each job's losses [J]."""
        task = self.task
        views = task.network.views(params)
        # Batched products want each layer's weights side by side, not a model's width apart.
        own = {name: view.contiguous() for name, view in views.items()}
        total = params.new_zeros(len(params))
        lr = jobs.lr.to(params.device, params.dtype)
        for k, active in at_work(jobs.steps):
            x, y, filled = inputs_of_step(task, jobs, dealt, k, active)
            key = batches.dropout_key(jobs.key[:active], jobs.first[:active] + k).to(params.device)
            share = filled.to(params.dtype) / dealt.filled[:active, k, None]
            now = own if active == len(params) else {name: tensor[:active] for name, tensor in own.items()}
            total[:active] += self._step(now, x, y, key, share, lr[:active])
        for name, view in views.items():
            view.copy_(own[name])
        return total

    def _step(self, params: Params, x: Tensor, y: Tensor, key: Tensor, share: Tensor, lr: Tensor) -> Tensor:
        kept = []
        for layer in self.layers:
            x, needed = layer.forward(params, x, key)
            kept.append(needed)
        log_p = F.log_softmax(x, -1)
        right = y[..., None]
        loss = -(log_p.gather(-1, right)[..., 0] * share).sum(-1)
        # The gradient of the mean cross entropy, times the learning rate.
        grad = log_p.exp_().scatter_add_(-1, right, log_p.new_full((), -1.0).expand(right.shape))
        grad *= (share * lr[:, None])[..., None]
        for i in range(len(self.layers) - 1, self.first - 1, -1):
            back = self.layers[i].backward(params, kept[i], grad, i > self.first)
            if back is not None:
                grad = back
        return loss

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Many models at once on pieces of the test samples."""
        return evaluate_in_pieces(self.task, models, self._scores)

    def _scores(self, models: Tensor, x: Tensor) -> Tensor:
        params = self.task.network.views(models)
        x = x.expand(len(models), *x.shape)
        for layer in self.layers:
            x, _ = layer.forward(params, x, None)
        return x

    def bytes_for_a_job(self, steps: int) -> int:
        """On a processor pieces are cut for its cache, long before memory ends."""
        return 0

    def release(self) -> None:
        """Nothing is kept."""
