"""The stepper for chains of common layers: no automatic differentiation, no gradients stored."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ccfed.training import batches
from ccfed.training.batches import BatchPlan
from ccfed.training.engine import Jobs, Task
from ccfed.training.layers import Drops, Layer, Params
from ccfed.training.stepping import at_work, evaluate_in_pieces

# A step's small tensors cost more in calls than in numbers: they are made for so many steps at once.
AHEAD = 16

# Test inputs that take no more than this are kept from round to round.
KEPT_BYTES = 2**26


class Ahead:
    """What the next steps of A jobs need besides the models, steps first: `rows` and `labels` [S, A, B] of the samples,
    `share` [S, A, B] of each in the mean loss (0 where a slot is empty), `rate` (share times learning rate), and
    dropout."""

    def __init__(self, task: Task, jobs: Jobs, dealt: BatchPlan, first: int, active: int) -> None:
        chosen = dealt.samples[:active, first : first + AHEAD].transpose(0, 1).contiguous()
        filled = dealt.filled[:active, first : first + AHEAD].transpose(0, 1).clamp(min=1)[..., None]
        self.task = task
        self.rows = chosen.clamp(min=0).to(torch.int64)
        self.labels = task.train_y[self.rows]
        self.share = (chosen >= 0).to(task.dtype) / filled
        self.rate = self.share * jobs.lr[:active, None].to(task.dtype)
        steps = jobs.first[:active] + torch.arange(first, first + len(chosen))[:, None]
        self.drops = Drops(batches.dropout_key(jobs.key[:active], steps))
        self.crops = batches.augment_key(jobs.key[:active], steps) if task.inputs.augments else None

    def inputs(self, s: int, active: int) -> Tensor:
        """The model's inputs in the s-th of the steps, for the first `active` jobs: [active, B, *sample]."""
        task, rows = self.task, self.rows[s, :active]
        # Row by row: many times faster on a processor than general indexing.
        stored = task.train_x.index_select(0, rows.flatten()).view(*rows.shape, *task.sample_shape)
        if self.crops is not None:
            stored = task.inputs.crop_and_flip(stored, self.crops[s, :active])
        return task.inputs.prepare(stored, task.dtype)


class Chain:
    """Steps a chain of layers for J jobs side by side, forward and backward by hand."""

    name = "chain of layers"

    def __init__(self, task: Task, layers: list[Layer]) -> None:
        self.task, self.layers = task, layers
        self.test_inputs: Tensor | None = None
        # What comes before the first layer that trains need not hear of the errors behind it.
        self.first = next((i for i, layer in enumerate(layers) if layer.trains), len(layers))

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """Makes all steps on `params` [J, parameters] in place; returns the sum of each job's losses [J]."""
        views = self.task.network.views(params)
        # Batched products want each layer's weights side by side, not a model's width apart.
        own = {name: view.contiguous() for name, view in views.items()}
        total = params.new_zeros(len(params))
        for k, active in at_work(jobs.steps):
            if k % AHEAD == 0:
                ahead = Ahead(self.task, jobs, dealt, k, active)
            now = own if active == len(params) else {name: tensor[:active] for name, tensor in own.items()}
            total[:active] += self._step(now, ahead, k % AHEAD, active)
        for name, view in views.items():
            view.copy_(own[name])
        return total

    def _step(self, params: Params, ahead: "Ahead", s: int, active: int) -> Tensor:
        x, kept = ahead.inputs(s, active), []
        ahead.drops.step, ahead.drops.active = s, active
        for layer in self.layers:
            x, needed = layer.forward(params, x, ahead.drops)
            kept.append(needed)
        log_p = F.log_softmax(x, -1)
        right = ahead.labels[s, :active, :, None]
        loss = -(log_p.gather(-1, right)[..., 0] * ahead.share[s, :active]).sum(-1)
        # The gradient of the mean cross entropy, times the learning rate.
        grad = log_p.exp_().scatter_add_(-1, right, log_p.new_full((), -1.0).expand(right.shape))
        grad *= ahead.rate[s, :active, :, None]
        for i in range(len(self.layers) - 1, self.first - 1, -1):
            back = self.layers[i].backward(params, kept[i], grad, i > self.first)
            if back is not None:
                grad = back
        return loss

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Many models at once on pieces of the test samples."""
        task = self.task
        if self.test_inputs is None and task.test_x.numel() * task.dtype.itemsize <= KEPT_BYTES:
            self.test_inputs = task.inputs.prepare(task.test_x, task.dtype)
        return evaluate_in_pieces(task, models, self._scores, prepared=self.test_inputs)

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
