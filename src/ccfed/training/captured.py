"""The general stepper on a GPU: a vmapped step of any module, recorded as CUDA graphs and replayed."""

import copy
from dataclasses import replace

import torch
from torch import Tensor, nn

from ccfed.training import batches, kernels
from ccfed.training.anymodule import AnyModule
from ccfed.training.batches import BatchPlan
from ccfed.training.engine import Jobs, Precision, Task
from ccfed.training.multiplying import multiplying
from ccfed.training.recording import Recorded
from ccfed.training.stepping import at_work, evaluate_in_pieces, inputs_of
from ccfed.training.trying import agrees, why_not_beside

# A graph for fewer jobs is recorded for at least so many steps; fewer go along in a larger one.
WORTH_RECORDING = 20


class Room:
    """Static memory for up to `jobs` jobs of up to `steps` steps: what the graphs read and write."""

    def __init__(self, task: Task, jobs: int, steps: int) -> None:
        device = task.device
        self.jobs, self.most = jobs, steps
        self.params = torch.zeros(jobs, task.network.size, dtype=task.dtype, device=device)
        self.samples = torch.full((steps, jobs, task.batch_size), -1, dtype=torch.int32, device=device)
        self.crops = torch.zeros(steps, jobs, dtype=torch.int64, device=device)
        self.drops = torch.zeros(steps, jobs, dtype=torch.int64, device=device)
        self.steps = torch.zeros(jobs, dtype=torch.int64, device=device)
        self.lr = torch.zeros(jobs, dtype=task.dtype, device=device)
        self.losses = torch.zeros(jobs, dtype=task.dtype, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)

    def take(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> None:
        """Copies the jobs in; the places of others have no steps to make."""
        device = params.device
        many, most = dealt.samples.shape[:2]
        step = torch.arange(most, device=device)[:, None] + jobs.first.to(device)
        key = jobs.key.to(device)
        self.params[:many] = params
        self.samples[:most, :many] = dealt.samples.transpose(0, 1)
        self.crops[:most, :many] = batches.augment_key(key, step)
        self.drops[:most, :many] = batches.dropout_key(key, step)
        self.steps.zero_()
        self.steps[:many] = jobs.steps.to(device)
        self.lr[:many] = jobs.lr.to(device, self.lr.dtype)
        self.losses.zero_()
        self.cursor.zero_()


class CapturedModule(AnyModule):
    """AnyModule without its launch overhead: the host only replays, and never waits inside a round."""

    name = "vmap over the module, as CUDA graphs"

    def __init__(self, task: Task, precision: Precision, stacked: bool = True) -> None:
        module = task.network.module
        self.convolves = any(type(part) is nn.Conv2d for part in module.modules())
        stacked = stacked and self.convolves and task.dtype == torch.float32 and kernels.available(task.device)
        if stacked:
            # The caller's module keeps its own convolutions.
            module = kernels.stack_convolutions(copy.deepcopy(module), "ieee" if precision == "float32" else "tf32")
        super().__init__(replace(task, network=replace(task.network, module=module)))
        self.precision, self.stacked = precision, stacked
        self.room: Room | None = None
        self.graphs: dict[int, Recorded] = {}

    def advance(self, params: Tensor, jobs: Jobs, dealt: BatchPlan) -> Tensor:
        """Replays each step's graph for as many jobs as are still at work."""
        self.module.train()
        room = self._room_for(*dealt.samples.shape[:2])
        sizes = self._sizes([active for _, active in at_work(jobs.steps)])
        room.take(params, jobs, dealt)
        for size in sizes:
            self.graphs[size]()
        params.copy_(room.params[: len(params)])
        return room.losses[: len(params)].clone()

    def _room_for(self, jobs: int, steps: int) -> Room:
        if self.room is None or jobs > self.room.jobs or steps > self.room.most:
            known = (0, 0) if self.room is None else (self.room.jobs, self.room.most)
            self.release()
            self.room = Room(self.task, max(rounded(jobs), known[0]), max(steps, known[1]))
        return self.room

    def _sizes(self, active: list[int]) -> list[int]:
        """The graph to replay for each step, by its number of jobs; those that are worth it are recorded."""
        assert self.room is not None
        wanted = [min(rounded(many), self.room.jobs) for many in active]
        for size in sorted(set(wanted)):
            largest = size == max(wanted)
            if size not in self.graphs and (largest or wanted.count(size) >= WORTH_RECORDING):
                self.graphs[size] = self._record(self.room, size)
        return [min(size for size in self.graphs if size >= want) for want in wanted]

    def _record(self, room: Room, size: int) -> Recorded:
        # Nobody has steps to make yet, so that the warm-up changes nothing.
        room.steps.zero_()
        room.cursor.zero_()
        with multiplying(self.task.device, self.precision):
            beside = next(iter(self.graphs.values()), None)
            return Recorded(lambda: self._step(room, size), self.task.device, room.cursor.zero_, beside=beside)

    def _step(self, room: Room, size: int) -> None:
        task = self.task
        chosen, crops, drops = (
            table[:, :size].index_select(0, room.cursor)[0] for table in (room.samples, room.crops, room.drops)
        )
        working = room.cursor < room.steps[:size]
        x, y, filled = inputs_of(task, chosen, crops if task.inputs.augments else None)
        weight = filled.to(task.dtype) / filled.sum(1, keepdim=True).clamp(min=1)
        views = task.network.views(room.params[:size])
        gradients, loss = self.gradients(views, x, y, weight, drops)
        for name, view in views.items():
            across = [-1, *(1 for _ in view.shape[1:])]
            move = gradients[name] * room.lr[:size].view(across)
            view.sub_(torch.where(working.view(across), move, 0))
        room.losses[:size] += torch.where(working, loss, 0)
        room.cursor += 1

    def evaluate(self, models: Tensor) -> tuple[Tensor, Tensor]:
        """Many models at once on pieces of the test samples; one by one where only the library's convolutions serve,
        which are slow when stacked."""
        with multiplying(self.task.device, self.precision):
            if self.stacked or not self.convolves:
                return super().evaluate(models)
            self.module.eval()
            views = self.task.network.views
            return evaluate_in_pieces(
                self.task,
                models,
                lambda some, x: torch.stack([self._scores(views(model), x) for model in some]),
                self.values,
            )

    def release(self) -> None:
        """Drops the graphs and their memory."""
        self.graphs.clear()
        self.room = None


def captured(task: Task, precision: Precision) -> CapturedModule:
    """The recorded stepper, if vmap can run this network and its kernels for convolutions prove right for it; else
    NotImplementedError."""
    stepper = CapturedModule(task, precision)
    if trouble := why_not_beside(task, stepper):
        raise NotImplementedError(trouble)
    if stepper.stacked and not agrees(task, stepper, precision):
        raise NotImplementedError("its convolutions cannot be stacked on this GPU: use --engine streams")
    return stepper


def rounded(many: int) -> int:
    """`many` rounded up to 4, 5, 6 or 7 times a power of two, so that few graphs serve all sizes."""
    unit = 1 << max(0, many.bit_length() - 3)
    return -(-many // unit) * unit
