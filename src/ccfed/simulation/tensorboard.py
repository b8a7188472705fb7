"""Scalars for TensorBoard: one event file in the folder of each run."""

from collections.abc import Mapping
from pathlib import Path

from ccfed.records import RoundRecord
from ccfed.simulation.loop import Simulation
from ccfed.simulation.running import Running

# TensorBoard shows what stands before the slash as a group.
TAGS = {
    "accuracy": "test/accuracy",
    "loss": "test/loss",
    "trained": "clients/trained",
    "estimated": "clients/estimated",
    "silent": "clients/silent",
    "client_steps": "cost/client_steps",
    "bytes_up": "cost/bytes_up",
    "bytes_down": "cost/bytes_down",
    "seconds": "cost/seconds",
}


class TensorBoard:
    """An observer that writes a scalar for each number of a round; its step is the number of rounds played.

    `folders` has one folder for each (experiment's name, seed), after which TensorBoard names the runs. It needs the
    package tensorboard: `pip install "ccfed[tensorboard]"`.
    """

    def __init__(self, folders: Mapping[tuple[str, int], Path]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError('--tensorboard needs the package tensorboard: pip install "ccfed[tensorboard]"') from error
        self._make: type[SummaryWriter] = SummaryWriter
        self._folders = dict(folders)
        self._writers: dict[tuple[str, int], SummaryWriter] = {}

    def on_start(self, simulation: Simulation) -> None:
        """Opens an event file for each run; one that goes on has all its rounds so far in the new file, and what an
        older file says of them is to be forgotten."""
        for running in simulation.running:
            key = running.experiment.name, running.experiment.seed
            purge = 0 if running.records else None
            self._writers[key] = self._make(str(self._folders[key]), purge_step=purge)
            for record in running.records:
                self._write(running, record)

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        """Writes the round's numbers."""
        for running, record in played:
            self._write(running, record)

    def on_end(self, simulation: Simulation) -> None:
        """Closes the event files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _write(self, running: Running, record: RoundRecord) -> None:
        writer = self._writers[running.experiment.name, running.experiment.seed]
        for name, tag in TAGS.items():
            writer.add_scalar(tag, getattr(record, name), record.round + 1)
