"""Which engine trains: the one that was asked for, or the one that a few measured steps show to be the fastest."""

import time
from collections.abc import Callable

import torch

from ccfed.models.network import reason
from ccfed.training.engine import Engine, JobFailed, Jobs, Precision, Task
from ccfed.training.fusedsteps import FusedSteps
from ccfed.training.lanes import Lanes
from ccfed.training.one_by_one import OneByOne
from ccfed.training.together import Together

TRIAL_STEPS = 5
TRIAL_JOBS = 16

LARGE = 1_000_000
"""With more parameters than this, clients are not stacked on a GPU unless that is asked for."""

ENGINES = ("one-by-one", "together", "streams")
"""The engines by name; "streams" needs a GPU."""


class CannotTrain(ValueError):
    """An engine cannot train this network on this device, for the reason that the message tells."""


def make(task: Task, name: str, precision: Precision = "float32") -> Engine:
    """The engine called `name`. Raises CannotTrain where it cannot train this network on this device."""
    if name not in ENGINES:
        raise CannotTrain(f"--engine is {name!r}, but it must be one of auto, {', '.join(ENGINES)}")
    if name == "one-by-one":
        return OneByOne(task, precision)
    if name == "streams" and task.device.type != "cuda":
        raise CannotTrain("--engine is 'streams', which needs a GPU: on a processor use together, one-by-one or auto")
    try:
        return Together(task, precision, Lanes(task, precision) if name == "streams" else None)
    except NotImplementedError as trouble:
        raise CannotTrain(
            f"--engine is {name!r}, which cannot train this model ({trouble}): use one-by-one or auto"
        ) from trouble


def choose(task: Task, jobs: Jobs, wanted: str, say: Callable[[str], None], precision: Precision = "float32") -> Engine:
    """The engine called `wanted`; for "auto", measures the candidates on the first steps of some of `jobs` and says
    so."""
    if wanted != "auto":
        engine = make(task, wanted, precision)
        say(f"engine {described(engine)}")
        return engine
    trial = _shortened(jobs)
    speeds: dict[str, float] = {}
    engines: dict[str, Engine] = {}
    names = ["together", "one-by-one"]
    if task.device.type == "cuda":
        # A large network fills a GPU by itself: stacking cannot gain, and its kernels take minutes to compile.
        names = ["streams", "one-by-one"] if task.network.size > LARGE else ["together", "streams", "one-by-one"]
    for name in names:
        try:
            engine = make(task, name, precision)
        except CannotTrain as trouble:
            say(f"engine auto passes over {name!r}, which cannot train this model ({trouble.__cause__})")
            continue
        if len(trial) == 0 or (isinstance(engine, Together) and isinstance(engine.stepper, FusedSteps)):
            # Nothing to measure, or nothing that could be faster.
            say(f"engine {described(engine)}")
            return engine
        try:
            engine.train(trial)  # warms up
        except (JobFailed, torch.OutOfMemoryError):
            raise
        except Exception as error:  # whatever a module, a compiler or a driver may raise: there are other engines
            say(f"engine auto passes over {name!r}, which cannot train this model ({reason(error)})")
            continue
        engines[name], speeds[name] = engine, _speed(engine, trial, task)
    best = max(speeds, key=lambda name: speeds[name])
    measured = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    say(f"engine {described(engines[best])}; client-steps a second on {len(trial)} jobs: {measured}")
    return engines[best]


def described(engine: Engine) -> str:
    """The engine's name and, if there are several, the way it goes: such as "together (fused kernels)"."""
    return f"{engine.name} ({engine.how})" if isinstance(engine, Together) else engine.name


def _shortened(jobs: Jobs) -> Jobs:
    some = jobs.take(torch.arange(min(len(jobs), TRIAL_JOBS)))
    steps = some.steps.clamp(max=TRIAL_STEPS)
    return Jobs(some.models, some.model_of, some.offset, some.size, some.key, some.first, steps, some.lr)


def _speed(engine: Engine, jobs: Jobs, task: Task) -> float:
    best = 0.0
    for _ in range(2):
        began = time.perf_counter()
        engine.train(jobs)
        if task.device.type == "cuda":
            torch.cuda.synchronize(task.device)
        best = max(best, int(jobs.steps.sum()) / (time.perf_counter() - began))
    return best
