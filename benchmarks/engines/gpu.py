"""Checks every way of training on a GPU against float64 on the processor, and measures each of them.

    python benchmarks/engines/gpu.py check [NAME ...]      errors of the moves, for every path and precision
    python benchmarks/engines/gpu.py convolutions          errors of the convolution kernels, shape by shape
    python benchmarks/engines/gpu.py sweep                 the perceptron's kernel in many shapes
    python benchmarks/engines/gpu.py rounds [NAME ...]     client-steps a second of whole rounds
    python benchmarks/engines/gpu.py kernels [NAME ...]    where a step's time goes, kernel by kernel

Data are made up, of the shapes of Fashion-MNIST and CIFAR-10. The numbers go to standard output, one line each.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor, nn

from ccfed import data
from ccfed.algorithm import methods
from ccfed.data import Dataset, Inputs
from ccfed.models import cnn, mlp, resnet18
from ccfed.models.network import Maker, build
from ccfed.models.resnet import Block
from ccfed.simulation.experiment import Experiment
from ccfed.simulation.loop import Simulation
from ccfed.training import Engine, Jobs, OneByOne, Precision, Task, Together
from ccfed.training import kernels as kernel_room
from ccfed.training import lanes as lanes_room
from ccfed.training.captured import CapturedModule
from ccfed.training.fusedsteps import FusedSteps
from ccfed.training.lanes import Lanes

GPU = torch.device("cuda")
GREY = Inputs(scale=1 / 255, mean=(0.5,), std=(0.5,))
COLOUR = Inputs(1 / 255, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), crop=4, flip=True)


def own(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A module that no kernel knows: strided and padded convolutions, GroupNorm, dropout."""
    return nn.Sequential(
        nn.Conv2d(sample_shape[0], 8, 3, 2, 1),
        nn.GroupNorm(2, 8),
        nn.GELU(),
        nn.Dropout2d(0.25),
        nn.Conv2d(8, 16, 3, 1, 1, bias=False),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(256, classes),
    )


def small_resnet(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The blocks of ResNet-18, few and narrow."""
    return nn.Sequential(
        nn.Conv2d(sample_shape[0], 32, 3, 1, 1, bias=False), nn.GroupNorm(16, 32), nn.ReLU(),
        Block(32, 32, 1), Block(32, 64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes),
    )  # fmt: skip


def made_up(shape: tuple[int, ...], inputs: Inputs, samples: int, seed: int = 0) -> Dataset:
    """Random images with random labels."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (samples + 10000, *shape), generator=draw, dtype=torch.uint8)
    y = torch.randint(0, 10, (samples + 10000,), generator=draw)
    names = tuple(map(str, range(10)))
    return Dataset("made-up", x[:samples], y[:samples], x[samples:], y[samples:], names, inputs)


def task_of(maker: Maker, dataset: Dataset, device: torch.device, dtype: torch.dtype, batch: int) -> Task:
    """The dataset's first samples as a task."""
    network = build(maker, dataset.sample_shape, 10, 0).to(device, dtype)
    arrays = (dataset.train_x, dataset.train_y, dataset.test_x[:500], dataset.test_y[:500])
    x, y, test_x, test_y = (tensor.to(device) for tensor in arrays)
    members = torch.arange(len(x), device=device)
    return Task(network, x, y, test_x, test_y, dataset.inputs, members, batch, device, dtype)


def uneven_jobs(models: Tensor, batch: int) -> Jobs:
    """Clients of different sizes, places in their epochs and numbers of steps."""
    size = torch.tensor([3 * batch + 5, batch - 3, 7, 2 * batch, batch])
    offset = size.cumsum(0) - size
    steps = torch.tensor([6, 3, 0, 5, 6])
    rates = torch.tensor([0.05, 0.02, 0.05, 0.1, 0.05], dtype=torch.float64)
    which = torch.tensor([0, 1, 1, 0, 1])
    return Jobs(models, which, offset, size, torch.arange(5) * 977 + 3, torch.tensor([0, 3, 1, 2, 9]), steps, rates)


def check(names: list[str]) -> None:
    """Relative errors of moves and losses, against the reference engine in float64 on the processor."""
    works = {"mlp": (mlp, (1, 28, 28), GREY, 32), "cnn": (cnn, (3, 32, 32), COLOUR, 64)}
    works |= {"own": (own, (3, 32, 32), COLOUR, 16), "resnet": (small_resnet, (3, 32, 32), COLOUR, 16)}
    for name, (maker, shape, inputs, batch) in works.items():
        if names and not {name, f"{name}-together"} & set(names):
            continue
        dataset = made_up(shape, inputs, 700)
        exact = task_of(maker, dataset, torch.device("cpu"), torch.float64, batch)
        start = exact.network.flat()
        models = torch.stack([start, start + 0.01 * torch.randn(len(start), dtype=torch.float64)]).to(torch.float32)
        truth = OneByOne(exact).train(uneven_jobs(models.to(torch.float64), batch))
        right, cost = OneByOne(exact).evaluate(models[:1].to(torch.float64))
        for precision in ("float32", "tf32", "bfloat16"):
            task = task_of(maker, dataset, GPU, torch.float32, batch)
            jobs = uneven_jobs(models.to(GPU), batch)
            for label in ("one-by-one", "together", "tf32x3", "vmap", "streams"):
                if f"{name}-together" in names and (label, precision) != ("together", "float32"):
                    continue
                if label == "tf32x3" and (precision != "float32" or name not in ("mlp", "cnn")):
                    continue
                try:
                    engine = engine_of(label, task, precision)
                    first, again = engine.train(jobs), engine.train(jobs)
                    alone = engine.train(jobs.take(torch.tensor([3])))
                    accuracy, loss = engine.evaluate(models[:1].to(GPU))
                except Exception as error:
                    print(f"check {name:9s} {precision:9s} {label:12s} FAILED {type(error).__name__}: {error}"[:400])
                    continue
                print(
                    f"check {name:9s} {precision:9s} {label:12s} moves {_error(first.moves, truth.moves):.1e}"
                    f" loss {_error(first.loss, truth.loss):.1e} again {_error(again.moves, first.moves):.1e}"
                    f" alone {_error(alone.moves[0], first.moves[3]):.1e}"
                    f" test {float(abs(accuracy - right)):.2f} {float(abs(loss - cost)):.1e}",
                    flush=True,
                )


def engine_of(name: str, task: Task, precision: Precision) -> Engine:
    """An engine, or "vmap": what together does with a network that has no kernels."""
    if name == "one-by-one":
        return OneByOne(task, precision)
    if name == "compiled":
        lanes = Lanes(task, precision)
        lanes.forward = torch.compile(lanes.forward, dynamic=False)
        lanes_room.StreamedDropout = lambda key: nullcontext()  # a trial with networks that have none
        return Together(task, precision, lanes)
    if name == "tf32x3":
        fused = kernel_room.fuse(task.network.module, task.sample_shape, task.batch_size, "tf32x3")
        assert fused is not None
        return Together(task, precision, FusedSteps(task, precision, fused))
    stepper = {"vmap": CapturedModule, "streams": Lanes}.get(name)
    return Together(task, precision, stepper(task, precision) if stepper else None)


def convolutions() -> None:
    """The stacked convolution against PyTorch's own, in float64."""
    from ccfed.training.kernels import convolve

    for shape in ((32, 32, 3, 1, 1), (32, 64, 3, 2, 1), (32, 64, 1, 2, 0), (3, 32, 3, 1, 1), (64, 64, 3, 1, 1),
                  (8, 16, 3, 1, 1), (16, 32, 3, 1, 1), (32, 16, 3, 1, 1)):  # fmt: skip
        into, out, size, stride, padding = shape
        for side in (8, 16, 32):
            x = torch.randn(2, 4, into, side, side, device=GPU, requires_grad=True)
            weight = torch.randn(2, out, into, size, size, device=GPU, requires_grad=True)
            how = ((stride, stride), (padding, padding))
            y = convolve(x, weight, None, *how)
            truth = torch.stack(
                [nn.functional.conv2d(a.double(), b.double(), None, *how) for a, b in zip(x, weight, strict=True)]
            )
            error = torch.randn_like(y)
            mine = (y, *torch.autograd.grad(y, (x, weight), error))
            right = (truth, *torch.autograd.grad(truth, (x, weight), error.double()))
            found = " ".join(f"{_error(a, b):.1e}" for a, b in zip(mine, right, strict=True))
            print(f"convolve {shape} side {side}: forward, to x, to weight {found}", flush=True)
    for groups, channels, side in ((2, 8, 16), (16, 32, 32), (16, 64, 16)):
        x = torch.randn(2, 16, channels, side, side, device=GPU)
        weight = torch.randn(2, channels, device=GPU)
        y = torch.func.vmap(lambda a, w, groups=groups: nn.functional.group_norm(a, groups, w, w))(x, weight)
        pairs = zip(x.double(), weight.double(), strict=True)
        truth = torch.stack([nn.functional.group_norm(a, groups, w, w) for a, w in pairs])
        print(f"group norm {groups} of {channels} side {side} {_error(y, truth):.1e}", flush=True)


def _error(found: Tensor, truth: Tensor) -> float:
    found, truth = found.detach().cpu().to(torch.float64), truth.detach().cpu().to(torch.float64)
    return float((found - truth).norm() / truth.norm())


# name: (maker, federations, clients, participation, steps, batch, precision, engine, rounds)
WORKS = {
    "cnn-8": (cnn, 1, 8, 1.0, 300, 64, "tf32", "together", 4),
    "cnn-64": (cnn, 8, 8, 1.0, 300, 64, "tf32", "together", 4),
    "cnn-256": (cnn, 32, 8, 1.0, 100, 64, "tf32", "together", 4),
    "cnn-64-float32": (cnn, 8, 8, 1.0, 300, 64, "float32", "together", 4),
    "cnn-64-tf32x3": (cnn, 8, 8, 1.0, 300, 64, "float32", "tf32x3", 4),
    "cnn-64-vmap": (cnn, 8, 8, 1.0, 50, 64, "tf32", "vmap", 3),
    "cnn-1-eager": (cnn, 1, 1, 1.0, 100, 64, "tf32", "one-by-one", 3),
    "mlp-80": (mlp, 1, 100, 0.8, 200, 32, "tf32", "together", 6),
    "mlp-80-float32": (mlp, 1, 100, 0.8, 200, 32, "float32", "together", 6),
    "mlp-80-vmap": (mlp, 1, 100, 0.8, 200, 32, "tf32", "vmap", 3),
    "mlp-2000": (mlp, 20, 100, 1.0, 200, 32, "tf32", "together", 6),
    "mlp-2000-float32": (mlp, 20, 100, 1.0, 200, 32, "float32", "together", 4),
    "mlp-1-eager": (mlp, 1, 1, 1.0, 200, 32, "tf32", "one-by-one", 3),
    "resnet-8": (resnet18, 1, 8, 1.0, 100, 64, "bfloat16", "streams", 3),
    "resnet-8-compiled": (resnet18, 1, 8, 1.0, 40, 64, "bfloat16", "compiled", 3),
    "resnet-8-tf32": (resnet18, 1, 8, 1.0, 20, 64, "tf32", "streams", 3),
    "resnet-1-eager": (resnet18, 1, 1, 1.0, 20, 64, "tf32", "one-by-one", 3),
}
MADE: dict[str, Dataset] = {}


def simulation(name: str) -> Simulation:
    """The simulation of a work, not yet begun."""
    maker, federations, clients, participation, steps, batch, precision, engine, rounds = WORKS[name]
    kind = "grey" if maker is mlp else "colour"
    if kind not in MADE:
        MADE[kind] = made_up((1, 28, 28), GREY, 60000) if kind == "grey" else made_up((3, 32, 32), COLOUR, 50000)
    method = methods.fedavg()
    experiments = [
        Experiment(
            method, MADE[kind].split(data.iid(), clients, seed), maker, seed, rounds, steps, batch, 0.01, participation
        )
        for seed in range(federations)
    ]

    def make(task: Task, jobs: Jobs) -> Engine:
        return engine_of(engine, task, precision)

    return Simulation(experiments, make, GPU)


class Watch:
    """Each round's seconds."""

    def __init__(self) -> None:
        self.laps: list[float] = []

    def on_start(self, simulation: Simulation) -> None:
        torch.cuda.synchronize()
        self.since = time.perf_counter()

    def on_round(self, simulation: Simulation, played: object) -> None:
        torch.cuda.synchronize()
        self.laps.append(time.perf_counter() - self.since)
        self.since = time.perf_counter()

    def on_end(self, simulation: Simulation) -> None:
        pass


def measure(name: str) -> None:
    """Whole rounds, and within them training alone and the test alone."""
    watch, sim = Watch(), simulation(name)
    sim.observers.append(watch)
    spent = {"train": [], "evaluate": []}
    made = sim._make_engine

    def timed(engine: Engine, part: str):
        whole = getattr(engine, part)

        def run(given):
            torch.cuda.synchronize()
            began = time.perf_counter()
            found = whole(given)
            torch.cuda.synchronize()
            spent[part].append(time.perf_counter() - began)
            return found

        return run

    def make(task: Task, jobs: Jobs) -> Engine:
        engine = made(task, jobs)
        engine.train, engine.evaluate = timed(engine, "train"), timed(engine, "evaluate")
        return engine

    sim._make_engine = make
    sim.run()
    made_steps = sum(r.records[-1].client_steps for r in sim.running)
    rounds = [made_steps / lap for lap in watch.laps[1:]]
    train, test = (statistics.median(spent[part][1:]) for part in ("train", "evaluate"))
    whole = statistics.median(watch.laps[1:])
    rest = whole - train - test
    print(
        f"round {name:18s} {statistics.median(rounds):12,.0f} /s ({min(rounds):,.0f}..{max(rounds):,.0f});"
        f" training alone {made_steps / train:12,.0f} /s; a round takes {1e3 * whole:.1f} ms: training"
        f" {1e3 * train:.1f}, test {1e3 * test:.1f}, host and rest {1e3 * rest:.1f}; first {watch.laps[0]:.1f} s",
        flush=True,
    )


def kernels(name: str) -> None:
    """A profile of the training of one round."""
    from torch.profiler import ProfilerActivity, profile

    sim = simulation(name)
    jobs = [r.begin_round() for r in sim.running]
    from ccfed.simulation.loop import _side_by_side

    everyone = _side_by_side(jobs)
    everyone = replace(everyone, steps=everyone.steps.clamp(max=20))
    engine = sim._make_engine(sim.task, everyone)
    engine.train(everyone)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        engine.train(everyone)
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)[:14]
    for row in rows:
        print(
            f"kernel {name} {row.self_device_time_total / 20:10.1f} us a step  {row.count:6d}  {row.key[:90]}",
            flush=True,
        )


VARIANTS = [
    (precision, block, warps, stages)
    for precision in ("tf32", "tf32x3", "ieee")
    for block in (32, 64, 128)
    for warps in (4, 8)
    for stages in (1, 2, 3)
    if not (precision == "ieee" and (stages > 1 or warps == 4 or block == 128))
    and not (block == 128 and (warps == 4 or precision == "tf32x3"))
]


def _perceptron(jobs: int, steps: int, variant: tuple[str, int, int, int], times: int) -> float:
    from ccfed.training import batches, kernels
    from ccfed.training.kernels.perceptron import perceptron_steps

    task = task_of(mlp, MADE["grey"], GPU, torch.float32, 32)
    model = kernels.recognise(task.network.module, (1, 28, 28))
    size, offset = torch.full((jobs,), 600), (torch.arange(jobs) % 100) * 600
    zeros, rates = torch.zeros(jobs, dtype=torch.int64), torch.full((jobs,), 0.01, dtype=torch.float64)
    made = Jobs(task.network.flat()[None], zeros, offset, size, torch.arange(jobs), zeros, zeros + steps, rates)
    dealt = batches.plan(task.members, made.offset, made.size, made.key, made.first, steps, 32)
    work = kernels.work_of(task, made, dealt, True)
    params = task.network.flat().repeat(jobs, 1)
    best = 1e9
    for _ in range(times):
        torch.cuda.synchronize()
        began = time.perf_counter()
        perceptron_steps(params, model, work, *variant)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    return jobs * steps / best


def _warm(variant: tuple[str, int, int, int]) -> None:
    MADE["grey"] = made_up((1, 28, 28), GREY, 60000)
    try:
        _perceptron(2, 2, variant, 1)
    except Exception as error:
        print(f"sweep {variant} FAILED {type(error).__name__}: {error}"[:300], flush=True)


def sweep() -> None:
    """The perceptron's kernel in many variants."""
    from torch import multiprocessing

    with multiprocessing.get_context("spawn").Pool(12) as pool:
        pool.map(_warm, VARIANTS, chunksize=1)
    MADE["grey"] = made_up((1, 28, 28), GREY, 60000)
    for variant in VARIANTS:
        try:
            few, many = _perceptron(80, 200, variant, 3), _perceptron(2000, 50, variant, 3)
        except Exception as error:
            print(f"sweep {variant} FAILED {type(error).__name__}", flush=True)
            continue
        print(f"sweep {variant!s:28s} 80 jobs {few:12,.0f} /s, 2000 jobs {many:12,.0f} /s", flush=True)


def main() -> None:
    """See the head of this file."""
    what, *names = sys.argv[1:] or ["check"]
    if what in ("check", "sweep", "convolutions"):
        check(names) if what == "check" else sweep() if what == "sweep" else convolutions()
    for name in (names or list(WORKS)) if what in ("rounds", "kernels") else []:
        try:
            {"rounds": measure, "kernels": kernels}[what](name)
        except Exception as error:
            print(f"{what} {name} FAILED {type(error).__name__}: {error}"[:600], flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
