"""Whole rounds by the stopwatch: every way of training takes its turn, several times over."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from ccfed.algorithm import budgets, methods
from ccfed.algorithm.methods import Method
from ccfed.bench.plain import plain_rounds
from ccfed.bench.works import Work
from ccfed.records import RoundRecord
from ccfed.simulation import Experiment, Running, Simulation
from ccfed.training import Engine, Jobs, Precision, Task
from ccfed.training.choose import CannotTrain, described, make

PLAIN = "plain loop"
BETA = 4.0
ONE_AFTER_ANOTHER = (PLAIN, "one-by-one")


@dataclass
class Pace:
    """How fast one way of training was: each timed round's client-steps and seconds; or why it could not be timed."""

    work: str
    how: str
    jobs: int
    threads: int
    steps: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    refused: str = ""

    @property
    def rates(self) -> list[float]:
        """Client-steps a second of every timed round."""
        return [steps / seconds for steps, seconds in zip(self.steps, self.seconds, strict=True)]

    @property
    def median(self) -> float:
        """The median of `rates`, NaN if nothing was timed."""
        return statistics.median(self.rates) if self.rates else float("nan")


class Stopwatch:
    """An observer that times rounds, the device's work included."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.seconds: list[float] = []
        self._since = 0.0

    def on_start(self, simulation: Simulation) -> None:
        """Starts."""
        self._since = _now(simulation.device)

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        """A lap."""
        now = _now(simulation.device)
        self.seconds.append(now - self._since)
        self.steps.append(sum(record.client_steps for _, record in played))
        self._since = _now(simulation.device)

    def on_end(self, simulation: Simulation) -> None:
        """Has nothing left to do."""


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def compare_engines(
    work: Work,
    engines: Sequence[str],
    device: torch.device,
    precision: Precision = "float32",
    *,
    rounds: int = 3,
    passes: int = 3,
    say: Callable[[str], None] = print,
) -> list[Pace]:
    """The pace of the plain loop (one thread on a processor) and of each of `engines`, FedAvg. They take turns,
    `passes` times; a turn is `rounds` rounds after one that warms up and is not counted. On a GPU, those who train one
    client after another are given only a few of many."""
    threads = torch.get_num_threads()
    works = {
        how: work.few() if how in ONE_AFTER_ANOTHER and device.type == "cuda" else work for how in (PLAIN, *engines)
    }
    paces = [Pace(work.name, how, mine.jobs, 1 if how == PLAIN else threads) for how, mine in works.items()]
    for number in range(passes):
        for (how, mine), pace in zip(works.items(), paces, strict=True):
            if pace.refused:
                continue
            if how == PLAIN:
                torch.set_num_threads(1)
                try:
                    pace.seconds += plain_rounds(mine, rounds + 1, device)[1:]
                finally:
                    torch.set_num_threads(threads)
                pace.steps += [mine.jobs * mine.steps] * rounds
            else:
                try:
                    watch, pace.how = _timed(mine, methods.fedavg(), how, device, precision, rounds + 1)
                except CannotTrain as reason:
                    pace.refused = str(reason)
                    say(f"{work.name}, {how}: {reason}")
                    continue
                pace.steps += watch.steps[1:]
                pace.seconds += watch.seconds[1:]
            say(f"pass {number + 1} of {passes}, {work.name}, {pace.how}: {pace.median:,.0f} client-steps a second")
    return paces


@dataclass(frozen=True)
class Saving:
    """CC-FedAvg beside FedAvg on the same engine, one number a pass: its share of the client-steps and of the time."""

    work: str
    how: str
    steps: list[float]
    seconds: list[float]


def compare_methods(
    work: Work,
    engine: str,
    device: torch.device,
    precision: Precision = "float32",
    *,
    rounds: int = 8,
    passes: int = 3,
    say: Callable[[str], None] = print,
) -> Saving:
    """What CC-FedAvg (beta = 4, round-robin) takes of FedAvg's client-steps and time, in `rounds` rounds after one that
    warms up. As many clients as the work selects are all there is, so that everyone has a past in those rounds."""
    work = replace(work, clients=work.selected, participation=1.0)
    saving = Saving(work.name, engine, [], [])
    sparing = methods.cc_fedavg(budgets.levels(work.clients, BETA), schedule="round-robin")
    for number in range(passes):
        full, _ = _timed(work, methods.fedavg(), engine, device, precision, rounds + 1)
        spared, how = _timed(work, sparing, engine, device, precision, rounds + 1)
        saving.steps.append(sum(spared.steps[1:]) / sum(full.steps[1:]))
        saving.seconds.append(sum(spared.seconds[1:]) / sum(full.seconds[1:]))
        say(
            f"pass {number + 1} of {passes}, {work.name}, {how}: cc-fedavg makes {saving.steps[-1]:.2f} of fedavg's "
            f"client-steps, and takes {saving.seconds[-1]:.2f} of its time"
        )
    return saving


def _timed(
    work: Work, method: Method, engine: str, device: torch.device, precision: Precision, rounds: int
) -> tuple[Stopwatch, str]:
    """The laps of a simulation, and what the engine calls itself."""
    watch, names = Stopwatch(), []
    experiments = [
        Experiment(method, work.federation(seed), work.maker, seed, rounds, work.steps, work.batch_size, work.lr,
                   work.participation)
        for seed in range(work.federations)
    ]  # fmt: skip

    def make_engine(task: Task, jobs: Jobs) -> Engine:
        made = make(task, engine, precision)
        names.append(described(made))
        return made

    Simulation(experiments, make_engine, device, [watch]).run()
    return watch, names[0]
