"""Runs the cells that are missing: all that can share a batch side by side, each written down when it ends."""

import datetime
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ccfed import data
from ccfed.data import Dataset, Federation
from ccfed.models.network import Network, find_model
from ccfed.paper.distance import distances
from ccfed.paper.plan import Cell
from ccfed.paper.store import Finished, Store, summed
from ccfed.simulation import Experiment, Observer, RoundRecord, Running, Simulation, run
from ccfed.simulation.checkpoint import Checkpoint
from ccfed.simulation.experiment import split_of
from ccfed.simulation.identity import Identities
from ccfed.simulation.simulate import find_device
from ccfed.training import Precision

Load = Callable[[str], Dataset]
Extra = dict[str, Any]

PROBES: dict[str, Callable[[Simulation, Running, Extra], None]] = {"distance": distances}
"""What can be measured beside the rounds: called before the first and after each round of a run with the probe of this
name."""

ENOUGH = {"mlp": 3000, "cnn": 256}
"""Trainings side by side of a model from which on more of them do not make a GPU faster."""
ENOUGH_OF_ANOTHER = 64
ENOUGH_ON_CPU = 16
MOST_AT_ONCE = 400  # federations in a batch
FOLDER = "paused"


@dataclass(frozen=True)
class Machine:
    """Where and how cells are run, and what is noted of it beside each result."""

    device: str = "auto"
    engine: str = "auto"
    precision: Precision = "float32"
    made: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> str:
        """The processor's name."""
        place = find_device(self.device)
        if place.type == "cuda":
            return torch.cuda.get_device_name(place)
        return f"CPU, {torch.get_num_threads()} threads"


@dataclass
class Deadline:
    """When to stop: a moment of `time.monotonic`, or as soon as `asked` is set (by a signal)."""

    at: float = float("inf")
    asked: bool = False

    @property
    def reached(self) -> bool:
        """Whether it is time to stop at the next round's end."""
        return self.asked or time.monotonic() >= self.at


class Sources:
    """Data sets and federations, each made once, so that runs on the same data share them."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._datasets: dict[str, Dataset] = {}
        self._federations: dict[tuple[Any, ...], Federation] = {}

    def dataset(self, name: str) -> Dataset:
        """The data set called `name`."""
        if name not in self._datasets:
            self._datasets[name] = self._load(name)
        return self._datasets[name]

    def federation(self, cell: Cell) -> Federation:
        """The data of a cell, dealt out to its clients."""
        s = cell.settings
        # A split that draws nothing is the same for every seed.
        seed = 0 if s.split == "highly-skewed" or (s.split == "mixed" and s.iid == 0) else s.seed
        key = (s.data, s.split, s.iid, s.shards_per_client, s.clients, seed)
        if key not in self._federations:
            self._federations[key] = self.dataset(s.data).split(split_of(s), s.clients, seed)
        return self._federations[key]

    def experiment(self, cell: Cell) -> Experiment:
        """The cell as the simulation takes it; its name is the cell's key."""
        s = cell.settings.check()
        method = s.make_method()
        if cell.probe:  # which may look at models that the method itself does not ask for
            method = method.but(estimator=replace(method.estimator, uses_trained_from=True))
        return Experiment(
            method=method,
            federation=self.federation(cell),
            model=find_model(s.model),
            seed=s.seed,
            rounds=s.rounds,
            steps=s.steps,
            batch_size=s.batch_size,
            lr=s.lr,
            participation=s.participation,
            weights=s.weights,
            name=cell.key,
            settings=s,
        )


class Bookkeeper:
    """An observer that writes down each run when it ends, lets probes measure, and stops and saves in time.

    Runs that are stopped on their way leave a checkpoint in `paused`/KEY, which is removed when they end.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        store: Store,
        machine: Machine,
        paused: Path,
        deadline: Deadline,
        save_every: float,
        say: Callable[[str], None],
    ) -> None:
        self.cells = {cell.key: cell for cell in cells}
        self.extras: dict[str, Extra] = {cell.key: {} for cell in cells}
        self.store, self.machine, self.paused, self.deadline = store, machine, paused, deadline
        self.save_every, self.say = save_every, say
        self._saved_at = time.monotonic()
        self._checkpoints: dict[str, Checkpoint] = {}
        self._open: list[Running] = []  # what is not written down yet

    def on_start(self, simulation: Simulation) -> None:
        """Takes up what an earlier call left."""
        identities = Identities()
        resumed = 0
        for running in simulation.running:
            name = running.experiment.name
            checkpoint = self._checkpoints[name] = Checkpoint(self.paused / name, identities.of(running))
            extra = checkpoint.restore(running, self.say)
            if extra is not None:
                self.extras[name] = extra
                resumed += 1
                self._measure(simulation, running)
        self._open = list(simulation.running)
        if resumed:
            self.say(f"going on with {resumed} runs that were stopped on their way")

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        """Measures, and writes down who has ended."""
        for running, _ in played:
            self._measure(simulation, running)
        self._write_finished(simulation)
        if self.deadline.reached:
            simulation.stop_requested = True
        if simulation.stop_requested or time.monotonic() - self._saved_at > self.save_every:
            self._save(simulation)

    def on_end(self, simulation: Simulation) -> None:
        """Writes down what diverged in the very last round."""
        self._write_finished(simulation)

    def _measure(self, simulation: Simulation, running: Running) -> None:
        probe = self.cells[running.experiment.name].probe
        if probe:
            PROBES[probe](simulation, running, self.extras[running.experiment.name])

    def _save(self, simulation: Simulation) -> None:
        for running in self._open:
            name = running.experiment.name
            self._checkpoints[name].save(running, self.extras[name], simulation.engine_name)
        self._saved_at = time.monotonic()

    def _write_finished(self, simulation: Simulation) -> None:
        for running in [running for running in self._open if running.finished]:
            self._open.remove(running)
            cell = self.cells[running.experiment.name]
            self.store.add(self._result(cell, running, simulation))
            remove_folder(self.paused / cell.key)

    def _result(self, cell: Cell, running: Running, simulation: Simulation) -> Finished:
        e = running.experiment
        on_clients, on_server = running.storage_bytes()
        date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        made = {
            "machine": self.machine.describe(),
            "engine": simulation.engine_name,
            "precision": self.machine.precision,
        }
        return Finished(
            key=cell.key,
            settings=cell.described(),
            rounds=e.rounds,
            client_steps_full=e.client_steps_full,
            storage_client_bytes=on_clients,
            storage_server_bytes=on_server,
            parameters=len(running.state.model),
            probe=cell.probe,
            diverged=running.diverged,
            chance=round(100 / len(e.federation.data.classes), 2),
            extra=self.extras[e.name],
            made={**made, "date": date, **self.machine.made},
            **summed(running.records),
        )


def run_missing(
    cells: Sequence[Cell],
    store: Store,
    machine: Machine,
    *,
    load: Load = data.load,
    deadline: Deadline | None = None,
    observers: Sequence[Observer] = (),
    say: Callable[[str], None] = print,
    save_every: float = 240.0,
    at_once: int | None = None,
) -> bool:
    """Runs those of `cells` that `store` lacks; False if the deadline came before all were done.

    Runs that share data, model and batch size go side by side, in batches of at most `at_once` that keep the machine
    busy and fit into its memory; those that stand first are in the first batch. What the deadline cuts off is kept
    beside the store, and taken up by the next call.
    """
    deadline = deadline or Deadline()
    sources = Sources(load)
    missing = store.missing(tuple(cells))
    paused = store.path.parent / FOLDER
    for number, batch in enumerate(batches := in_batches(missing, sources, machine, at_once), 1):
        if deadline.reached:
            return False
        first = batch[0].settings
        say(f"batch {number} of {len(batches)}: {len(batch)} runs of {first.model} on {first.data}")
        keeper = Bookkeeper(batch, store, machine, paused, deadline, save_every, say)
        run(
            [sources.experiment(cell) for cell in batch],
            device=machine.device,
            engine=machine.engine,
            precision=machine.precision,
            observers=[keeper, *observers],
            on_divergence="leave out",
            say=say,
        )
    if paused.is_dir() and not any(paused.iterdir()):
        paused.rmdir()
    return not store.missing(missing)


def remove_folder(folder: Path) -> None:
    """Removes a run's checkpoint, if there is one."""
    if folder.is_dir():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def in_batches(
    cells: Sequence[Cell], sources: Sources, machine: Machine, at_once: int | None = None
) -> list[tuple[Cell, ...]]:
    """The cells in batches of those that can be trained side by side: full enough to keep the machine busy, small
    enough for its memory, at most `at_once` runs each; in the order of their first cells."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, cell in enumerate(cells):
        s = cell.settings
        groups.setdefault((s.data, s.model, s.batch_size), []).append(i)
    room = free_bytes(machine) / 2
    on_cpu = find_device(machine.device).type == "cpu"
    out: list[list[int]] = []
    for group in groups.values():
        network = sources.experiment(cells[group[0]]).make_network()
        enough = ENOUGH_ON_CPU if on_cpu else ENOUGH.get(cells[group[0]].settings.model, ENOUGH_OF_ANOTHER)
        batch: list[int] = []
        taken = busy = 0.0
        for i in group:
            need, most = memory_of(cells[i], network), at_once or MOST_AT_ONCE
            if batch and (taken + need > room or len(batch) == most or (at_once is None and busy >= enough)):
                out.append(batch)
                batch, taken, busy = [], 0.0, 0.0
            batch.append(i)
            taken += need
            busy += side_by_side(cells[i])
        out.append(batch)
    return [tuple(cells[i] for i in batch) for batch in sorted(out)]


def memory_of(cell: Cell, network: Network) -> float:
    """About the bytes that a run takes while it shares a batch: its pasts, and the work of one round."""
    s = cell.settings
    past = s.clients if s.make_method().estimator.keeps else 0
    working = max(1.0, s.participation * s.clients)
    vectors = 2 * past + 6 * working  # moves and the models they started from; parameters, gradients, moves
    samples = working * s.steps * s.batch_size * 24  # which sample lies in which slot
    return 4 * network.size * vectors + samples


def free_bytes(machine: Machine) -> float:
    """The memory that is free on the device (on a processor without psutil, what the system says is free)."""
    place = find_device(machine.device)
    if place.type == "cuda":
        return float(torch.cuda.mem_get_info(place)[0])
    try:
        import psutil
    except ModuleNotFoundError:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return float(psutil.virtual_memory().available)


def side_by_side(cell: Cell) -> float:
    """How many clients of a run train in a round, as a rule."""
    return client_steps_of(cell) / (cell.settings.rounds * cell.settings.steps)


def client_steps_of(cell: Cell) -> float:
    """The client-steps that a run is expected to take (exactly, but for what is drawn)."""
    s = cell.settings
    method = s.make_method()
    selected = s.clients if s.participation == 1 else max(int(s.participation * s.clients + 1e-9), 1)
    p = method.budget(torch.arange(s.clients))
    if method.schedule.name == "always":
        share = float(method.work(p, s.steps).to(torch.float64).mean()) / s.steps
    elif method.schedule.name == "synchronised":
        share = float(p.min())
    else:
        share = float(p.mean())
    probe = s.rounds * s.steps if cell.probe == "distance" else 0
    return s.rounds * s.steps * selected * share + probe


def speed_known(cell: Cell, store: Store, machine: Machine) -> float | None:
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
