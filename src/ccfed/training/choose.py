"""Which engine trains: the one that was asked for, or the one that a few measured steps show to be the fastest."""

import time
from collections.abc import Callable

import torch

from ccfed.training.engine import Engine, Jobs, Precision, Task
from ccfed.training.one_by_one import OneByOne
from ccfed.training.together import Together

TRIAL_STEPS = 3
TRIAL_JOBS = 16


def choose(task: Task, jobs: Jobs, wanted: str, say: Callable[[str], None], precision: Precision = "float32") -> Engine:
    """The engine called `wanted`; for "auto", measures the candidates on the first steps of some of `jobs` and says
    so."""
    if wanted == "one-by-one":
        return OneByOne(task)
    if wanted == "together":
        return Together(task, precision)
    if len(jobs) == 0:
        return Together(task, precision)
    trial = _shortened(jobs)
    speeds: dict[str, float] = {}
    engines: dict[str, Engine] = {}
    for make in (lambda: Together(task, precision), lambda: OneByOne(task)):
        try:
            engine = make()
            engine.train(trial)  # warms up
            engines[engine.name], speeds[engine.name] = engine, _speed(engine, trial, task)
        except NotImplementedError as reason:
            say(f"engine together cannot run this model ({reason})")
    best = max(speeds, key=lambda name: speeds[name])
    measured = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    say(f"engine {best} (client-steps a second on {len(trial)} jobs: {measured})")
    return engines[best]


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
