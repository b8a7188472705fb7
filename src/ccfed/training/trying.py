"""Kernels are tried before they are trusted: on two small jobs, beside PyTorch's own operations."""

import torch
from torch import Tensor

from ccfed.algorithm import streams
from ccfed.training import batches
from ccfed.training.anymodule import AnyModule
from ccfed.training.engine import Jobs, Precision, Task
from ccfed.training.multiplying import multiplying
from ccfed.training.stepping import Stepper

# Moves may differ by rounding, by TF32, and where a unit sits at the bend of its ReLU; a wrong kernel is wrong by more.
TOLERANCE = 0.1


def agrees(task: Task, stepper: Stepper, reference: Stepper, precision: Precision = "float32") -> bool:
    """Whether `stepper` makes the same moves as `reference`, and runs at all: a compiler may be wrong for some shape.

    Two jobs make two steps and one, with a short batch among them, from the network's parameters and some noise.
    """
    model = _somewhere(task)
    nobody = torch.zeros(2, dtype=torch.int64)
    size = torch.tensor([task.batch_size + 1, task.batch_size]).clamp(max=len(task.members))
    rates = torch.full((2,), 0.05, dtype=torch.float64)
    steps = torch.tensor([2, 1])
    jobs = Jobs(model[None], nobody, nobody, size, torch.arange(2), nobody, steps, rates)
    dealt = batches.plan(task.members, jobs.offset, jobs.size, jobs.key, jobs.first, 2, task.batch_size)
    moves = []
    try:
        for each in (stepper, reference):
            params = model.repeat(2, 1)
            with multiplying(task.device, precision):
                each.advance(params, jobs, dealt)
            moves.append(params - model)
    except torch.OutOfMemoryError:
        return True  # says nothing about the kernel; training will cut its pieces
    except Exception:  # whatever a compiler or a driver may raise: the reference does without the kernel
        return False
    finally:
        stepper.release()
        reference.release()
    mine, right = moves
    return bool((mine - right).norm() <= TOLERANCE * right.norm())


def scores_agree(task: Task, stepper: AnyModule, reference: AnyModule) -> bool:
    """Whether both give a batch the same scores under two models: for kernels that are used in tests only."""
    models = torch.stack([_somewhere(task), 1.1 * _somewhere(task)])
    x = task.inputs.prepare(task.train_x[: task.batch_size], task.dtype)
    with torch.no_grad():
        try:
            mine, right = (each.scores(task.network.views(models), x) for each in (stepper, reference))
        except torch.OutOfMemoryError:
            return True
        except Exception:
            return False
    return bool((mine - right).norm() <= TOLERANCE * right.norm())


def _somewhere(task: Task) -> Tensor:
    """The network's parameters and some noise."""
    start = task.network.flat().to(task.device, task.dtype)
    noise = streams.normal(streams.stream(0, "trying a kernel"), torch.arange(len(start)))
    return start + 0.02 * noise.to(task.device, task.dtype)
