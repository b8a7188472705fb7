"""What one sees while it runs: a progress bar on a terminal, a plain line now and then elsewhere; on stderr."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ccfed.simulation.loop import Simulation
from ccfed.simulation.running import RoundRecord, Running

LINES = 10  # plain lines in a whole run


class ShowProgress:
    """An observer that tells round, accuracy, clients trained and estimated, and time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._began, self._from, self._rounds = 0.0, 0, 0

    def on_start(self, simulation: Simulation) -> None:
        """Shows the bar, or says what starts."""
        self._began = time.perf_counter()
        self._from = min(r.state.round for r in simulation.running)
        self._rounds = max(r.experiment.rounds for r in simulation.running)
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=self.console,
            )
            self._bar.start()
            self._task = self._bar.add_task("starting", total=self._rounds, completed=self._from)

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        """Moves the bar on, or prints a line every tenth of the way."""
        done = played[0][1].round + 1
        text = _state_of(played)
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, description=text)
        elif done == self._rounds or done % max(1, self._rounds // LINES) == 0:
            took = time.perf_counter() - self._began
            left = took / (done - self._from) * (self._rounds - done)
            print(f"round {done}/{self._rounds}: {text}, {left:.0f} s left", file=sys.stderr, flush=True)

    def on_end(self, simulation: Simulation) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _state_of(played: list[tuple[Running, RoundRecord]]) -> str:
    records = [record for _, record in played]
    trained, estimated = sum(r.trained for r in records), sum(r.estimated for r in records)
    if len(played) == 1:
        accuracy = f"accuracy {records[0].accuracy:.1f} %"
    else:
        worst, best = min(r.accuracy for r in records), max(r.accuracy for r in records)
        accuracy = f"{len(played)} federations, accuracy {worst:.1f} to {best:.1f} %"
    return f"{accuracy}, {trained} trained, {estimated} estimated"
