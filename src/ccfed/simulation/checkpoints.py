"""Checkpoints while many federations run: when they are made, and how a later call goes on from them."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ccfed.records import RoundRecord
from ccfed.simulation.checkpoint import Checkpoint, Refused
from ccfed.simulation.identity import Identities
from ccfed.simulation.loop import Diverged, Simulation, TrainingFailed
from ccfed.simulation.running import Running

FOLDER = "checkpoint"
SHARE_OF_TIME = 0.02
"""Checkpoints take at most about this share of the time."""


class Checkpoints:
    """An observer that saves each federation into the folder `checkpoint` of its run, and with `resume` takes up what
    is there.

    It must come before the observers that look at records when they start or end. A checkpoint is made when `seconds`
    have passed since the last, or later if making them takes long; always at the end, also when the simulation is
    stopped or diverges. `say` hears where federations go on, and of damaged files.
    """

    def __init__(
        self,
        folders: dict[tuple[str, int], Path],
        *,
        resume: bool = False,
        seconds: float = 10.0,
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.folders, self.resume, self.seconds, self.say = folders, resume, seconds, say
        self._checkpoints: dict[int, Checkpoint] = {}  # by the id of the federation
        self._saved: dict[int, int] = {}  # rounds in the last checkpoint
        self._due = 0.0
        self._locks = ExitStack()

    def on_start(self, simulation: Simulation) -> None:
        """Locks the folders, and puts the federations where the last call left them."""
        self._checkpoints, self._saved = {}, {}
        with ExitStack() as locks:
            identities = Identities()
            for running in simulation.running:
                folder = self.folders[running.experiment.name, running.experiment.seed] / FOLDER
                locks.enter_context(locked(folder))
                checkpoint = self._checkpoints[id(running)] = Checkpoint(folder, identities.of(running))
                if self.resume and checkpoint.restore(running, self.say) is not None:
                    self._saved[id(running)] = running.state.round
                    simulation.engine_before = simulation.engine_before or checkpoint.engine
            self._locks = locks.pop_all()
        if self.resume:
            self.say(_where(simulation.running))
        self._due = time.monotonic() + self.seconds

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        """Saves all federations if it is time."""
        began = time.monotonic()
        if began >= self._due:
            self._save(simulation)
            ended = time.monotonic()
            self._due = ended + max(self.seconds, (ended - began) / SHARE_OF_TIME if self.seconds else 0.0)

    def on_end(self, simulation: Simulation) -> None:
        """Saves all federations, unless what ends the simulation may have struck in the middle of a round."""
        trouble = sys.exception()
        try:
            # A federation that diverges or fails does so before anything of the round has changed it.
            if trouble is None or isinstance(trouble, Diverged | TrainingFailed):
                self._save(simulation)
        finally:
            self._locks.close()

    def _save(self, simulation: Simulation) -> None:
        for running in simulation.running:
            if self._saved.get(id(running)) != running.state.round or running.diverged is not None:
                self._checkpoints[id(running)].save(running, engine=simulation.engine_name)
                self._saved[id(running)] = running.state.round


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Makes `folder` and holds it against other processes; Refused if one holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / "lock", blocking=False).acquire()
    except Timeout as error:
        raise Refused(f"{folder.parent} is in use: another process simulates the same run") from error
    with lock:
        yield


def _where(running: list[Running]) -> str:
    """Such as 'going on after round 40 of 100; 2 of 6 federations have finished'."""
    left = [each for each in running if not each.finished]
    rounds = sorted({each.state.round for each in left})
    done = f"{len(running) - len(left)} of {len(running)} federations have finished"
    if not left:
        return f"nothing to do: {done}"
    if rounds == [0] and len(left) == len(running):
        return "there is no checkpoint to go on from: beginning with the first round"
    at = f"{rounds[0]}" if len(rounds) == 1 else f"{rounds[0]} to {rounds[-1]}"
    text = f"going on after {at} of {left[0].experiment.rounds} rounds"
    return text if len(running) == 1 or len(left) == len(running) else f"{text}; {done}"
