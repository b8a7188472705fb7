"""Measures the engines on a processor in every way that was tried, and shows where a step's time goes.

    python benchmarks/engines/cpu.py ways [WORK ...]       whole rounds in each way, in turns
    python benchmarks/engines/cpu.py calls [WORK ...]      where the time of training goes, call by call, on one core

The works are those of `ccfed bench` (default: mlp-20 cnn-8), with half the local steps. Let the machine do nothing
else.
"""

import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch

from ccfed.algorithm import methods
from ccfed.bench import WORKS, Work, machine
from ccfed.simulation import Experiment, Simulation, Table
from ccfed.simulation.loop import _side_by_side
from ccfed.training import Engine, Jobs, OneByOne, Task, Together, Trained, together
from ccfed.training.anymodule import AnyModule

CPU = torch.device("cpu")
PASSES, ROUNDS = 3, 2
Make = Callable[[Task], Engine]


def as_it_is(task: Task) -> Engine:
    """What `--engine together` does."""
    return Together(task)


def in_pieces_of(jobs: int) -> Make:
    """As it is, but with so many jobs side by side, whatever the cache holds."""

    def make(task: Task) -> Engine:
        engine = Together(task)
        engine.piece = jobs
        return engine

    return make


class PieceForACore:
    """Each core has a thread that steps pieces of its own, and shares no product."""

    def __init__(self, task: Task) -> None:
        self.task, self.cores = task, torch.get_num_threads()
        torch.set_num_threads(1)
        self.engines = [Together(task) for _ in range(self.cores)]
        torch.set_num_threads(self.cores)
        self.evaluate = self.engines[0].evaluate

    def train(self, jobs: Jobs) -> Trained:
        shares = torch.arange(len(jobs)).tensor_split(self.cores)
        try:
            with ThreadPoolExecutor(self.cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                done = list(pool.map(lambda engine, share: engine.train(jobs.take(share)), self.engines, shares))
        finally:
            torch.set_num_threads(self.cores)
        return Trained(torch.cat([each.moves for each in done]), torch.cat([each.loss for each in done]))


def shared_products(task: Task) -> Engine:
    """All cores share each product, however large the network."""
    kept = together.FEW
    together.FEW = 0
    try:
        return Together(task)
    finally:
        together.FEW = kept


def by_vmap(task: Task) -> Engine:
    """Derivatives by torch.func instead of by hand."""
    kept = together.make_stepper
    together.make_stepper = lambda task, precision: AnyModule(task)
    try:
        return Together(task)
    finally:
        together.make_stepper = kept


WAYS: dict[str, Make] = {
    "as it is": as_it_is,
    "1 job a piece": in_pieces_of(1),
    "2 jobs a piece": in_pieces_of(2),
    "5 jobs a piece": in_pieces_of(5),
    "10 jobs a piece": in_pieces_of(10),
    "20 jobs a piece": in_pieces_of(20),
    "a thread and jobs for each core": PieceForACore,
    "products shared": shared_products,
    "vmap": by_vmap,
    "one-by-one": OneByOne,
}


def simulation(work: Work, make: Make, rounds: int) -> Simulation:
    """FedAvg on the work, not yet begun."""
    experiments = [
        Experiment(methods.fedavg(), work.federation(seed), work.maker, seed, rounds, work.steps, work.batch_size,
                   work.lr, work.participation)
        for seed in range(work.federations)
    ]  # fmt: skip
    return Simulation(experiments, lambda task, jobs: make(task), CPU)


def timed(work: Work, make: Make) -> tuple[list[float], list[float], list[float]]:
    """The seconds of each round after the first: all of it, its training, its test."""
    spent: dict[str, list[float]] = {"train": [], "evaluate": []}
    laps: list[float] = []

    def watched(task: Task) -> Engine:
        engine = make(task)
        for part, kept in spent.items():
            setattr(engine, part, _clocked(getattr(engine, part), kept))
        return engine

    sim = simulation(work, watched, ROUNDS + 1)
    sim.observers.append(Watch(laps))
    sim.run()
    return laps[1:], spent["train"][1:], spent["evaluate"][-ROUNDS:]


def _clocked(whole: Callable, kept: list[float]) -> Callable:
    def run(given: object) -> object:
        began = time.perf_counter()
        found = whole(given)
        kept.append(time.perf_counter() - began)
        return found

    return run


class Watch:
    """Each round's seconds."""

    def __init__(self, laps: list[float]) -> None:
        self.laps, self.since = laps, 0.0

    def on_start(self, simulation: Simulation) -> None:
        self.since = time.perf_counter()

    def on_round(self, simulation: Simulation, played: object) -> None:
        self.laps.append(time.perf_counter() - self.since)
        self.since = time.perf_counter()

    def on_end(self, simulation: Simulation) -> None:
        pass


def ways(names: list[str]) -> None:
    """Every way takes its turn, several times over."""
    rows = []
    for name in names:
        work = replace(WORKS[name], steps=WORKS[name].steps // 2)
        found: dict[str, list[list[float]]] = {way: [[], [], []] for way in WAYS}
        for _ in range(PASSES):
            for way, make in WAYS.items():
                for kept, new in zip(found[way], timed(work, make), strict=True):
                    kept += new
        for way, (laps, train, test) in found.items():
            steps = work.jobs * work.steps
            whole, training, testing = map(statistics.median, (laps, train, test))
            rows.append({
                "work": name,
                "way": way,
                "client-steps/s": f"{steps / whole:,.0f}",
                "lowest to highest": f"{steps / max(laps):,.0f} to {steps / min(laps):,.0f}",
                "training alone": f"{steps / training:,.0f}",
                "training": f"{training / whole:.0%}",
                "test": f"{testing / whole:.0%}",
                "rest": f"{1 - (training + testing) / whole:.0%}",
            })  # fmt: skip
    print(f"{machine()}; {torch.get_num_threads()} threads, {PASSES} turns of {ROUNDS} rounds\n")
    print(Table(rows))


def calls(names: list[str]) -> None:
    """A profile of the training of one round on one core."""
    from torch.profiler import ProfilerActivity, profile

    torch.set_num_threads(1)
    rows = []
    for name in names:
        work = replace(WORKS[name], steps=WORKS[name].steps // 4)
        sim = simulation(work, as_it_is, 1)
        jobs: Jobs = _side_by_side([running.begin_round() for running in sim.running])
        engine = as_it_is(sim.task)
        engine.train(jobs)
        with profile(activities=[ProfilerActivity.CPU]) as found:
            engine.train(jobs)
        averages = found.key_averages()
        total = sum(row.self_cpu_time_total for row in averages)
        for row in sorted(averages, key=lambda row: -row.self_cpu_time_total)[:14]:
            rows.append({
                "work": name,
                "call": row.key,
                "share": f"{row.self_cpu_time_total / total:.1%}",
                "calls a step": f"{row.count / work.steps / -(-work.jobs // engine.piece):.1f}",
            })  # fmt: skip
    print(f"{machine()}; one thread, training alone\n")
    print(Table(rows))


def main() -> None:
    """Does what the command line asks for."""
    what, *names = sys.argv[1:] or [""]
    if what not in ("ways", "calls") or not set(names) <= set(WORKS):
        raise SystemExit(__doc__)
    {"ways": ways, "calls": calls}[what](names or ["mlp-20", "cnn-8"])


if __name__ == "__main__":
    main()
