"""A federation on its way: the state that one experiment carries from round to round."""

from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor

from ccfed.algorithm import Assignment, Outcome, Space, play, select, start, streams
from ccfed.records import RoundRecord as RoundRecord
from ccfed.simulation.experiment import Experiment
from ccfed.training import Jobs


class Running:
    """One experiment, its State, each client's number of steps so far, and the records of the rounds played."""

    def __init__(
        self,
        experiment: Experiment,
        model: Tensor,
        first_member: int,
        space: Space | None = None,
        store_dtype: torch.dtype | None = None,
    ) -> None:
        clients = experiment.federation.clients
        self.experiment = experiment
        self.state = start(experiment.method, model, clients, space, store_dtype)
        self.steps_done = torch.zeros(clients, dtype=torch.int64)
        self.records: list[RoundRecord] = []
        self.took_part: list[tuple[np.ndarray, np.ndarray]] = []  # each round: who was selected, who of them trained
        self.bytes_up = torch.zeros(clients, dtype=torch.int64)
        self.bytes_down = torch.zeros(clients, dtype=torch.int64)
        self.diverged: str | None = None  # what happened, if the simulation goes on without this federation
        self.kept_storage: tuple[int, int] | None = None  # of a finished federation whose pasts were not read again
        self._offsets = experiment.federation.parts.offsets[:-1] + first_member
        self._sizes = experiment.federation.sizes
        self._key = streams.stream(experiment.seed, "client")
        self._weights = experiment.weight_of_each()
        self._playing: Generator[Assignment, Tensor, Outcome] | None = None
        self._assigned: Assignment | None = None

    @property
    def finished(self) -> bool:
        """Whether all rounds are played, or none can be any more."""
        return self.state.round >= self.experiment.rounds or self.diverged is not None

    def storage_bytes(self) -> tuple[int, int]:
        """(on all clients together, on the server): bytes that the pasts take there."""
        return self.kept_storage or self.state.history.storage_bytes()

    def storage(self) -> dict[str, np.ndarray]:
        """The bytes of pasts that each client stores at last, int64 [clients], and that all clients and the server do
        after each round, int64 [rounds]."""
        history, rounds = self.state.history, len(self.took_part)
        first = np.full(len(self.steps_done), rounds)  # the round in which each client first trained
        for t, (selected, trained) in reversed(list(enumerate(self.took_part))):
            first[selected[trained]] = t
        there, each = history.on_server.numpy(), history.bytes_each
        begun = [np.bincount(first[where], minlength=rounds + 1)[:rounds] for where in (~there, there)]
        return {
            "storage_bytes": each * ((first < rounds) & ~there).astype(np.int64),
            "storage_client_bytes": each * begun[0].cumsum(),
            "storage_server_bytes": each * begun[1].cumsum(),
        }

    def begin_round(self) -> Jobs:
        """Selects clients, lets the method decide who trains, and returns their jobs."""
        e = self.experiment
        selected = select(e.federation.clients, e.participation, self.state.round, e.seed)
        self._playing = play(
            self.state, e.method, selected, steps=e.steps, rounds=e.rounds, seed=e.seed, weights=self._weights
        )
        work = self._assigned = next(self._playing)
        return self.jobs(work.model, work.clients, work.steps)

    def jobs(self, model: Tensor, clients: Tensor, steps: Tensor) -> Jobs:
        """The jobs of `clients` (int64 [C]) that make their next `steps` (int64 [C]) steps from `model`
        [parameters]."""
        return Jobs(
            models=model[None],
            model_of=torch.zeros(len(clients), dtype=torch.int64),
            offset=self._offsets[clients],
            size=self._sizes[clients],
            key=streams.fold(self._key, clients),
            first=self.steps_done[clients],
            steps=steps,
            lr=torch.full((len(clients),), self.experiment.lr, dtype=torch.float64),
        )

    def end_round(self, moves: Tensor) -> Outcome:
        """Takes the moves of the jobs [J, parameters] and finishes the round."""
        assert self._playing is not None
        assert self._assigned is not None
        try:
            self._playing.send(moves)
        except StopIteration as stop:
            outcome: Outcome = stop.value
        work = self._assigned
        self.steps_done[work.clients] += work.steps
        self.bytes_up[outcome.selected] += outcome.traffic.up
        self.bytes_down[outcome.selected] += outcome.traffic.down
        self.took_part.append((outcome.selected.numpy(), outcome.trained.numpy()))
        self._playing = self._assigned = None
        return outcome

    def clients_at_work(self) -> Tensor:
        """The clients that the round in progress trains: int64 [J]."""
        assert self._assigned is not None
        return self._assigned.clients

    def record(self, outcome: Outcome, accuracy: float, loss: float, seconds: float) -> RoundRecord:
        """Notes what the round came to."""
        trained, estimated = int(outcome.trained.sum()), int(outcome.estimated.sum())
        selected = len(outcome.selected)
        made = RoundRecord(
            round=outcome.round,
            accuracy=accuracy,
            loss=loss,
            selected=selected,
            trained=trained,
            estimated=estimated,
            silent=selected - trained - estimated,
            client_steps=int(outcome.steps.sum()),
            bytes_up=int(outcome.traffic.up.sum()),
            bytes_down=int(outcome.traffic.down.sum()),
            seconds=seconds,
        )
        self.records.append(made)
        return made
