"""The rounds of many federations, side by side: those that share data, model and batch size are trained together."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Literal, Protocol

import torch
from torch import Tensor

from ccfed.algorithm import NotFinite, Outcome, Space
from ccfed.models.network import Network
from ccfed.simulation.experiment import Experiment
from ccfed.simulation.running import RoundRecord, Running
from ccfed.training import Engine, JobFailed, Jobs, Task, Trained


class Observer(Protocol):
    """What wants to know of a simulation's course: all that is optional (progress, files, checkpoints) is an
    observer."""

    def on_start(self, simulation: "Simulation") -> None:
        """Before the first round that is played now."""

    def on_round(self, simulation: "Simulation", played: list[tuple[Running, RoundRecord]]) -> None:
        """After every round, with the federations that played it."""

    def on_end(self, simulation: "Simulation") -> None:
        """After the last round, also if it ends in an exception; only if `on_start` went well."""


class Diverged(ArithmeticError):
    """A loss, a client's move or a global model became NaN or infinite."""


class TrainingFailed(RuntimeError):
    """The model raised an exception while a client was trained, which the message names."""


class Simulation:
    """Federations that share data, model and batch size, the engine that trains them, and who watches."""

    def __init__(
        self,
        experiments: Sequence[Experiment],
        make_engine: Callable[[Task, Jobs], Engine],
        device: torch.device,
        observers: Sequence[Observer] = (),
        space: Space | None = None,
        store_dtype: torch.dtype | None = None,
        on_divergence: Literal["raise", "leave out"] = "raise",
    ) -> None:
        networks = [experiment.make_network() for experiment in experiments]
        models = [network.flat().to(device) for network in networks]
        self.device, self.observers, self.space = device, list(observers), space or Space()
        self.task = _task(experiments, networks[0], device, models[0].dtype)
        self.running: list[Running] = []
        first_member, seen = 0, {}
        for experiment, model in zip(experiments, models, strict=True):
            parts = experiment.federation.parts
            if id(parts) not in seen:
                seen[id(parts)] = first_member
                first_member += len(parts.members)
            self.running.append(Running(experiment, model, seen[id(parts)], self.space, store_dtype))
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._on_divergence = on_divergence
        self._beside: list[tuple[Jobs, Callable[[Trained], None]]] = []
        self._trouble: Diverged | None = None
        self.stop_requested = False
        self.engine_before = ""  # that of an earlier call from which this one goes on

    @property
    def engine_name(self) -> str:
        """The engine at work, or "none" before the first round (of an earlier call, if this one goes on from there)."""
        return self.engine_before or "none" if self._engine is None else self._engine.name

    def train_beside(self, jobs: Jobs, then: Callable[[Trained], None]) -> None:
        """Trains `jobs` in one batch with the next round's, for an observer that measures something, and hands what
        came out to `then`: nothing of it is counted or kept. If there is no next round, they are dropped."""
        self._beside.append((jobs, then))

    def run(self) -> None:
        """Plays all rounds that are left."""
        started: list[Observer] = []
        try:
            for observer in self.observers:
                observer.on_start(self)
                started.append(observer)
            while not self.stop_requested and (playing := [r for r in self.running if not r.finished]):
                played = self._round(playing)
                for observer in self.observers if played else ():
                    observer.on_round(self, played)
                if self._trouble is not None:
                    raise self._trouble
        finally:
            with ExitStack() as ending:  # one after another, and each of them whatever happens to another
                for observer in reversed(started):
                    ending.callback(observer.on_end, self)

    def _round(self, playing: list[Running]) -> list[tuple[Running, RoundRecord]]:
        began = time.perf_counter()
        jobs = [federation.begin_round() for federation in playing]
        beside, self._beside = self._beside, []
        everyone = _side_by_side([*jobs, *(extra for extra, _ in beside)])
        trained = _parted(self._train(playing, everyone), [sum(map(len, jobs)), *(len(extra) for extra, _ in beside)])
        for (_, then), extra in zip(beside, trained[1:], strict=True):
            then(extra)
        self._look_for_divergence(playing, trained[0])
        moves_of = trained[0].moves.split([len(j) for j in jobs])
        outcomes = [
            (federation, outcome)
            for federation, moves in zip(playing, moves_of, strict=True)
            if federation.diverged is None and (outcome := self._end_round(federation, moves)) is not None
        ]
        if not outcomes:
            return []
        assert self._engine is not None
        accuracy, loss = self._engine.evaluate(torch.stack([federation.state.model for federation, _ in outcomes]))
        seconds = time.perf_counter() - began
        steps = [int(outcome.steps.sum()) for _, outcome in outcomes]
        total = sum(steps)
        # Rounds played side by side share their time by the client-steps that each made.
        shares = [made / total if total else 1 / len(outcomes) for made in steps]
        played = [
            (federation, federation.record(outcome, a, lo, seconds * share))
            for (federation, outcome), a, lo, share in zip(
                outcomes, accuracy.tolist(), loss.tolist(), shares, strict=True
            )
        ]
        for federation, record in played:
            if not math.isfinite(record.loss):
                what = f"the global model's loss on the test samples is {record.loss}"
                self._diverges(federation, record.round, what)
        return played

    def _train(self, playing: list[Running], everyone: Jobs) -> Trained:
        try:
            if self._engine is None:
                self._engine = self._make_engine(self.task, everyone)
            return self._engine.train(everyone)
        except JobFailed as failure:
            federation, client = _owner(playing, failure.job)
            raise TrainingFailed(
                f"round {federation.state.round}: the training of client {client} failed "
                f"({federation.experiment.label}): {failure}"
            ) from failure.__cause__

    def _look_for_divergence(self, playing: list[Running], trained: Trained) -> None:
        # A sum is finite unless some entry is not (or it overflows, which is no better).
        bad = ~torch.isfinite(trained.moves.sum(1) + trained.loss)
        if not bad.any():
            return
        for j in bad.nonzero().flatten().tolist():
            federation, client = _owner(playing, j)
            what = f"the training of client {client} gave a loss or move that is not finite"
            self._diverges(federation, federation.state.round, what)
            if self._trouble is not None:
                raise self._trouble  # nobody has played the round yet

    def _end_round(self, federation: Running, moves: Tensor) -> Outcome | None:
        """Finishes a federation's round; None if it diverges, which leaves it as it was before the round."""
        try:
            return federation.end_round(moves)
        except NotFinite as trouble:
            self._diverges(federation, federation.state.round, str(trouble))
            return None

    def _diverges(self, federation: Running, round: int, what: str) -> None:
        e = federation.experiment
        message = f"round {round}: {what} ({e.label}, lr {e.lr:g}): a smaller learning rate may help"
        if self._on_divergence == "leave out":
            federation.diverged = federation.diverged or message
        else:
            self._trouble = self._trouble or Diverged(message)


def _task(experiments: Sequence[Experiment], network: Network, device: torch.device, dtype: torch.dtype) -> Task:
    dataset = experiments[0].federation.data
    parts = {id(e.federation.parts): e.federation.parts for e in experiments}
    return Task(
        network=network.to(device, dtype),
        train_x=dataset.train_x.to(device),
        train_y=dataset.train_y.to(device),
        test_x=dataset.test_x.to(device),
        test_y=dataset.test_y.to(device),
        inputs=dataset.inputs,
        members=torch.cat([part.members for part in parts.values()]).to(device),
        batch_size=experiments[0].batch_size,
        device=device,
        dtype=dtype,
    )


def _side_by_side(jobs: list[Jobs]) -> Jobs:
    models = torch.cat([j.models for j in jobs])
    which = torch.cat([j.model_of + m for m, j in enumerate(jobs)])
    columns = ("offset", "size", "key", "first", "steps", "lr")
    return Jobs(models, which, *(torch.cat([getattr(j, column) for j in jobs]) for column in columns))


def _parted(trained: Trained, lengths: list[int]) -> list[Trained]:
    """What came of jobs that were side by side, in parts of these lengths."""
    parts = zip(trained.moves.split(lengths), trained.loss.split(lengths), strict=True)
    return [Trained(moves, loss) for moves, loss in parts]


def _owner(playing: list[Running], job: int) -> tuple[Running, int]:
    """Whose the job of this number is: the federation and the client."""
    for federation in playing:
        clients = federation.clients_at_work()
        if job < len(clients):
            return federation, int(clients[job])
        job -= len(clients)
    raise AssertionError(f"no federation has job {job}")
