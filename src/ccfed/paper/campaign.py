"""Runs the cells that are missing: all that can share a batch side by side, each written down when it ends."""

import datetime
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ccfed import data
from ccfed.data import Dataset, Federation
from ccfed.models.network import Network, find_model
from ccfed.paper.distance import distances
from ccfed.paper.machine import Machine
from ccfed.paper.plan import Cell
from ccfed.paper.sharing import in_batches
from ccfed.paper.store import Finished, Store, summed
from ccfed.simulation import Experiment, Observer, RoundRecord, Running, Simulation, run
from ccfed.simulation.checkpoint import Checkpoint, Refused
from ccfed.simulation.experiment import split_of
from ccfed.simulation.identity import Identities

Load = Callable[[str], Dataset]
Extra = dict[str, Any]

PROBES: dict[str, Callable[[Simulation, Running, Extra], None]] = {"distance": distances}
"""What can be measured beside the rounds: called before the first and after each round of a run with the probe of this
name."""

FOLDER = "paused"


@dataclass
class Deadline:
    """When to stop: a moment of `time.monotonic`, or as soon as `asked` is set (by a signal)."""

    at: float = float("inf")
    asked: bool = False

    @property
    def reached(self) -> bool:
        """Whether it is time to stop at the next round's end."""
        return self.asked or time.monotonic() >= self.at


class SomeFailed(RuntimeError):
    """Some runs could not be made, for the reasons that the message tells; all others were.

    `bad_input`: all of these reasons are something that was asked for and cannot be, such as data that are not there.
    """

    def __init__(self, message: str, bad_input: bool = False) -> None:
        super().__init__(message)
        self.bad_input = bad_input


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

    def network(self, cell: Cell) -> Network:
        """The cell's network, checked against its data."""
        return self.experiment(cell).make_network()


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
        self._before: dict[str, list[dict[str, str]]] = {}  # where runs were made that an earlier call began
        self._open: list[Running] = []  # what is not written down yet

    def on_start(self, simulation: Simulation) -> None:
        """Takes up what an earlier call left."""
        identities = Identities()
        resumed = 0
        for running in simulation.running:
            name = running.experiment.name
            checkpoint = self._checkpoints[name] = Checkpoint(self.paused / name, identities.of(running))
            try:
                kept = checkpoint.restore(running, self.say)
            except Refused as trouble:
                raise Refused(str(trouble).removeprefix("--resume: ")) from trouble
            if kept is not None:
                self.extras[name], self._before[name] = kept["probed"], kept["made"]
                simulation.engine_before = simulation.engine_before or checkpoint.engine
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
            kept = {"probed": self.extras[name], "made": self._places(name, simulation)}
            self._checkpoints[name].save(running, kept, simulation.engine_name)
        self._saved_at = time.monotonic()

    def _write_finished(self, simulation: Simulation) -> None:
        for running in [running for running in self._open if running.finished]:
            self._open.remove(running)
            cell = self.cells[running.experiment.name]
            self.store.add(self._result(cell, running, simulation))
            remove_folder(self.paused / cell.key)

    def _places(self, name: str, simulation: Simulation) -> list[dict[str, str]]:
        """Where and how the rounds of a run were made so far: by the calls before this one, and by this one."""
        here = {
            "machine": self.machine.describe(),
            "engine": simulation.engine_name,
            "precision": self.machine.precision,
        }
        before = self._before.get(name, [])
        return before if here in before[-1:] else [*before, here]

    def _result(self, cell: Cell, running: Running, simulation: Simulation) -> Finished:
        e = running.experiment
        on_clients, on_server = running.storage_bytes()
        date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
        places = self._places(e.name, simulation)
        made = {what: ", then ".join(dict.fromkeys(place[what] for place in places)) for what in places[0]}
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
    beside the store, and taken up by the next call. A batch that fails does not keep the others from being run: after
    them SomeFailed is raised. One for which there is not enough memory is tried again in halves.
    """
    deadline = deadline or Deadline()
    sources = Sources(load)
    missing = store.missing(tuple(cells))
    paused = store.path.parent / FOLDER
    if paused.is_dir():
        for cell in set(cells).difference(missing):
            remove_folder(paused / cell.key)  # which a call that was killed could not remove any more
    failed: list[str] = []
    possible, bad_input = _that_can_be(missing, sources, failed), True
    waiting = deque(in_batches(possible, sources.network, machine, at_once))
    number = 0
    while waiting and not deadline.reached:
        batch = store.missing(waiting.popleft())
        if not batch:  # half of one for which there was not enough memory, whose runs had ended
            continue
        number += 1
        what = _described(batch)
        say(f"batch {number} of {number + len(waiting)}: {what}")
        keeper = Bookkeeper(batch, store, machine, paused, deadline, save_every, say)
        no_room = False
        try:
            run(
                [sources.experiment(cell) for cell in batch],
                device=machine.device,
                engine=machine.engine,
                precision=machine.precision,
                observers=[keeper, *observers],
                on_divergence="leave out",
                say=say,
            )
        except OSError:  # of the disk, which the next batch needs as well
            raise
        except torch.OutOfMemoryError as trouble:
            no_room = len(batch) > 1
            if not no_room:
                failed.append(f"{what}: {trouble}")
                bad_input = False
        except ValueError as trouble:
            failed.append(f"{what}: {trouble}")
        except Exception as trouble:
            for line in traceback.format_exc().splitlines():
                say(line)
            say(f"batch {number} failed; the others are gone on with")
            failed.append(f"{what}: {type(trouble).__name__}: {trouble}")
            bad_input = False
        del keeper
        machine.tidy_up()
        if no_room:
            say("there is not enough memory: in halves again")
            half = len(batch) // 2
            waiting.extendleft((batch[half:], batch[:half]))
    if paused.is_dir() and not any(paused.iterdir()):
        with suppress(OSError):  # another call is at work in the same folder
            paused.rmdir()
    if failed:
        raise SomeFailed("; ".join(failed), bad_input)
    return not store.missing(missing)


def _that_can_be(cells: Sequence[Cell], sources: Sources, failed: list[str]) -> tuple[Cell, ...]:
    """Those of `cells` whose data are there and whose model takes them; of the others, `failed` is told why."""
    kinds: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        kinds.setdefault((cell.settings.data, cell.settings.model), []).append(cell)
    wrong: set[str] = set()
    for alike in kinds.values():
        try:
            sources.network(alike[0])
        except ValueError as trouble:
            failed.append(f"{_described(alike)}: {trouble}")
            wrong |= {cell.key for cell in alike}
    return tuple(cell for cell in cells if cell.key not in wrong)


def _described(cells: Sequence[Cell]) -> str:
    """Such as '12 runs of cnn on cifar10'."""
    return f"{len(cells)} run{'s' * (len(cells) != 1)} of {cells[0].settings.model} on {cells[0].settings.data}"


def remove_folder(folder: Path) -> None:
    """Removes a run's checkpoint, if there is one."""
    if folder.is_dir():
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
