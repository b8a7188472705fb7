"""The Python door: a federation and some methods in, their results out."""

import logging
import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import nn

from ccfed.algorithm import Space
from ccfed.algorithm.methods import Method
from ccfed.data import Federation
from ccfed.models.network import Maker, find_model
from ccfed.simulation.experiment import Experiment
from ccfed.simulation.loop import Observer, Simulation
from ccfed.simulation.results import Run, Runs
from ccfed.simulation.settings import known
from ccfed.training import Engine, Jobs, Precision, Task
from ccfed.training.choose import CannotTrain, choose

log = logging.getLogger("ccfed")


def simulate(
    federation: Federation,
    methods: Method | Iterable[Method],
    *,
    model: str | Maker | nn.Module = "mlp",
    rounds: int = 100,
    steps: int = 20,
    batch_size: int = 32,
    lr: float = 0.05,
    participation: float = 1.0,
    weights: Literal["equal", "samples"] = "equal",
    seeds: Iterable[int] = (0,),
    device: str | torch.device = "auto",
    engine: str = "auto",
    precision: Precision = "float32",
    observers: Sequence[Observer] = (),
) -> Runs:
    """Simulates every method with every seed, all side by side, and returns their results.

    `model` is a name ("mlp", "cnn", "resnet18", "module:function"), a function that makes an nn.Module (it is given the
    samples' shape and the number of classes if it takes them), or an nn.Module, whose parameters are then x_0.
    """
    chosen = [methods] if isinstance(methods, Method) else list(methods)
    for method in chosen:
        if not isinstance(method, Method):
            raise ValueError(f"methods has {method!r}, but each must be a Method, such as methods.fedavg()")
    names = [method.name for method in chosen]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two methods are called {name!r}: rename one with method.but(name=...)")
    numbers = [operator.index(seed) for seed in seeds]
    if not chosen or not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"methods {names} and seeds {numbers} are given, but each must list at least one, none twice")
    rounds, steps, batch_size = _count("rounds", rounds), _count("steps", steps), _count("batch_size", batch_size)
    if not 0 < lr < float("inf"):
        raise ValueError(f"lr is {lr}, but it must be a finite number above 0")
    maker = find_model(model) if isinstance(model, str) else model
    experiments = [
        Experiment(method, federation, maker, seed, rounds, steps, batch_size, lr, participation, weights)
        for method in chosen
        for seed in numbers
    ]
    return run(experiments, device=device, engine=engine, precision=precision, observers=observers)


def run(
    experiments: Sequence[Experiment],
    *,
    device: str | torch.device = "auto",
    engine: str = "auto",
    precision: Precision = "float32",
    observers: Sequence[Observer] = (),
    space: Space | None = None,
    store_dtype: torch.dtype | None = None,
    on_divergence: Literal["raise", "leave out"] = "raise",
    say: Callable[[str], None] = log.info,
) -> Runs:
    """Simulates `experiments`: those that share data, model and batch size side by side, the groups one after another.

    `say` hears one sentence about each choice that was made, such as the engine. A federation that diverges ends the
    simulation with Diverged, or with "leave out" only its own rounds.
    """
    known("--precision", precision, get_args(Precision))
    place = find_device(device)

    def make_engine(task: Task, jobs: Jobs) -> Engine:
        # A run goes on with the engine that it was begun with, so that it comes to the same result.
        before = simulation.engine_before
        if before and engine == "auto":
            try:
                return choose(task, jobs, before, say, precision)
            except CannotTrain:  # on this device: then another is chosen
                pass
        if before not in ("", engine):
            say(f"begun with engine {before}, going on with {engine}: numbers may differ in their last digits")
        return choose(task, jobs, engine, say, precision)

    finished: dict[int, Run] = {}
    # Kernels run on the current GPU, wherever their tensors are.
    with torch.cuda.device(place) if place.type == "cuda" else nullcontext():
        for group in groups(experiments):
            members = [experiments[i] for i in group]
            simulation = Simulation(members, make_engine, place, observers, space, store_dtype, on_divergence)
            simulation.run()
            finished |= {i: Run.of(running) for i, running in zip(group, simulation.running, strict=True)}
    return Runs([finished[i] for i in range(len(experiments))])


def _count(option: str, value: int) -> int:
    """`value` as Python's own integer, which NumPy's are not; ValueError unless it is a whole number above 0."""
    try:
        count = operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise ValueError(f"{option} is {value}, but it must be a whole number of at least 1")
    return count


def groups(experiments: Sequence[Experiment]) -> list[list[int]]:
    """The indices of `experiments` that can share a batch: same data set, same model, same batch size."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for i, e in enumerate(experiments):
        key = (id(e.federation.data), id(e.model), e.batch_size)
        found.setdefault(key, []).append(i)
    return list(found.values())


def find_device(device: str | torch.device) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one."""
    device = str(device)
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device is {device!r}, but this machine has no GPU that PyTorch can use: use cpu or auto")
    try:
        place = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"--device is {device!r}, but it must be auto, cpu, cuda or cuda:N") from error
    if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device is {device!r}, but the last GPU here is cuda:{torch.cuda.device_count() - 1}")
    return place


def run_folder_name(base: Path, name: str, seed: int) -> Path:
    """The folder of one method and seed inside a comparison's folder."""
    return base / f"{name}-seed-{seed}"
