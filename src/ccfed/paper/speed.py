"""How fast a machine makes the runs of one kind: as fast as it did before, or as a few measured steps show."""

import time
from collections.abc import Callable

import torch

from ccfed import data
from ccfed.algorithm import methods
from ccfed.data import Dataset
from ccfed.data.originals import ORIGINALS
from ccfed.models.network import build, find_model
from ccfed.paper.machine import Machine
from ccfed.paper.plan import Cell
from ccfed.paper.store import Store
from ccfed.simulation import Experiment, Simulation
from ccfed.training.choose import LARGE, make

SHAPES = {"fmnist": (1, 28, 28), "cifar10": (3, 32, 32), "cifar100": (3, 32, 32)}
TELLING = 0.3  # seconds; shorter measurements tell more of what it takes to begin
ON_GPU = {"mlp": 1000, "cnn": 128}
"""So many trainings side by side show a GPU's speed with a model."""
ON_GPU_OTHER = 8
ON_CPU, ON_CPU_LARGE = 16, 1


def known_speed(cell: Cell, store: Store, machine: Machine) -> float | None:
    """Client-steps a second of runs like `cell` (same data and model) on this kind of machine, if there were any."""
    here = machine.describe()
    alike = [
        run
        for run in store
        if run.settings.get("data") == cell.settings.data
        and run.settings.get("model", "mlp") == cell.settings.model
        and run.made.get("machine") == here
    ]
    seconds = sum(run.seconds for run in alike)
    return sum(sum(run.client_steps) for run in alike) / seconds if seconds > 0 else None


def measured_speed(cell: Cell, machine: Machine, say: Callable[[str], None]) -> float | None:
    """Client-steps a second of a few steps like those of `cell`, on random images; None if its data are no images that
    are known by name. Tests and the host's work are left out, so that a run is somewhat slower."""
    s = cell.settings
    if s.data not in SHAPES:
        return None
    say(f"measuring the speed of {s.model} on {s.data} with a few steps")
    images, maker, on_gpu = random_images(s.data), find_model(s.model), machine.place.type == "cuda"
    large = build(maker, images.sample_shape, len(images.classes), 0).size > LARGE
    clients = ON_GPU.get(s.model, ON_GPU_OTHER) if on_gpu else ON_CPU_LARGE if large else ON_CPU
    name = machine.engine
    if name == "auto":
        name = ("streams" if on_gpu else "one-by-one") if large else "together"
    federation = images.split(data.explicit([torch.arange(len(images.train_y))] * clients), clients)
    experiment = Experiment(methods.fedavg(), federation, maker, batch_size=s.batch_size, lr=s.lr)
    simulation = Simulation([experiment], lambda task, jobs: make(task, name, machine.precision), machine.place)
    engine, running = make(simulation.task, name, machine.precision), simulation.running[0]

    def seconds_for(steps: int) -> float:
        jobs = running.jobs(running.state.model, torch.arange(clients), torch.full((clients,), steps))
        began = time.perf_counter()
        engine.train(jobs)
        if on_gpu:
            torch.cuda.synchronize(machine.place)
        return time.perf_counter() - began

    took = seconds_for(1)  # which warms up, but where a step takes seconds
    if took > 5 * TELLING and not on_gpu:
        return clients / took
    steps = 1
    while (took := seconds_for(steps)) < TELLING:
        steps *= 3
    return clients * steps / took


def random_images(name: str, train: int = 2000, test: int = 10) -> Dataset:
    """Random images with the shape, the classes and the preparation of the data set called `name`."""
    original, draw = ORIGINALS[name], torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (train + test, *SHAPES[name]), generator=draw, dtype=torch.uint8)
    y = torch.randint(0, len(original.classes), (train + test,), generator=draw)
    return Dataset(name, x[:train], y[:train], x[train:], y[train:], original.classes, original.inputs)
