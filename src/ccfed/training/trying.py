"""What may fail is tried before it is trusted: kernels beside the reference engine, modules for two clients at once."""

import copy
import warnings
from dataclasses import replace

import torch
from torch import Tensor
from torch.func import functional_call

from ccfed.algorithm import streams
from ccfed.models.network import reason
from ccfed.training import batches
from ccfed.training.anymodule import AnyModule
from ccfed.training.engine import Jobs, Precision, Task
from ccfed.training.multiplying import multiplying
from ccfed.training.one_by_one import OneByOne
from ccfed.training.stepping import Stepper

# Moves may differ by rounding, by TF32, and where a unit sits at the bend of its ReLU; a wrong kernel is wrong by more.
TOLERANCE = 0.1


def agrees(task: Task, stepper: Stepper, precision: Precision = "float32") -> bool:
    """Whether `stepper` makes the same moves as the reference, and runs at all: a compiler may be wrong for some shape.

    Two jobs make two steps and one, with a short batch among them, from the network's parameters and some noise.
    """
    model, none = _somewhere(task), torch.zeros(2, dtype=torch.int64)
    size = torch.tensor([task.batch_size + 1, task.batch_size]).clamp(max=len(task.members))
    rates = torch.full((2,), 0.05, dtype=torch.float64)
    jobs = Jobs(model[None], none, none, size, torch.arange(2), none, torch.tensor([2, 1]), rates)
    dealt = batches.plan(task.members, jobs.offset, jobs.size, jobs.key, jobs.first, 2, task.batch_size)
    module = copy.deepcopy(task.network.module)
    reference = OneByOne(replace(task, network=replace(task.network, module=module)), precision)
    try:
        mine = model.repeat(2, 1)
        with multiplying(task.device, precision):
            stepper.advance(mine, jobs, dealt)
        right = reference.train(jobs).moves
        return bool((mine - model - right).norm() <= TOLERANCE * right.norm())
    except torch.OutOfMemoryError:
        return True  # says nothing about the kernel; training will cut its pieces
    except Exception:  # whatever a compiler or a driver may raise: there are ways without the kernel
        return False
    finally:
        stepper.release()


def scores_agree(task: Task, stepper: AnyModule) -> bool:
    """Whether `stepper` gives a batch the module's own scores under two models: for kernels that only test."""
    models = _two_models(task)
    x = task.inputs.prepare(task.train_x[: task.batch_size], task.dtype)
    views = task.network.views
    stepper.module.eval()
    module = copy.deepcopy(task.network.module).eval()
    with torch.no_grad():
        try:
            mine = stepper.scores(views(models), x)
            right = torch.stack([functional_call(module, views(model), (x,)) for model in models])
            return bool((mine - right).norm() <= TOLERANCE * right.norm())
        except torch.OutOfMemoryError:
            return True
        except Exception:
            return False


def why_not_beside(task: Task, stepper: AnyModule) -> str:
    """What goes wrong where `stepper` trains and tests two models side by side, in a few words; empty if nothing does:
    vmap knows no way for some operations, such as LSTM's, nor for what Python decides by the numbers it sees."""
    views = task.network.views(_two_models(task))
    x = task.inputs.prepare(task.train_x[: task.batch_size], task.dtype)
    y = task.train_y[: task.batch_size]
    batch = x.expand(2, *x.shape), y.expand(2, -1), torch.ones(2, len(y), dtype=task.dtype, device=task.device)
    keys = torch.zeros(2, dtype=torch.int64, device=task.device)
    try:
        with warnings.catch_warnings(action="ignore"):  # of ways that are slow: what is fast is measured anyway
            stepper.module.train()
            stepper.gradients(views, *batch, keys)
            stepper.module.eval()
            with torch.no_grad():
                stepper.scores(views, x)
    except torch.OutOfMemoryError:
        return ""
    except Exception as error:  # whatever a module or vmap may raise
        return reason(error).partition(". ")[0]
    return ""


def _two_models(task: Task) -> Tensor:
    """Two models that are not the same [2, parameters]."""
    model = _somewhere(task)
    return torch.stack([model, 1.1 * model])


def _somewhere(task: Task) -> Tensor:
    """The network's parameters and some noise."""
    start = task.network.flat().to(task.device, task.dtype)
    noise = streams.normal(streams.stream(0, "trying a kernel"), torch.arange(len(start)))
    return start + 0.02 * noise.to(task.device, task.dtype)
