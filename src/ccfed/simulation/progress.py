"""What one sees while it runs: a progress bar on a terminal, a plain line now and then elsewhere; on stderr."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from ccfed.simulation.loop import Simulation
from ccfed.simulation.running import RoundRecord, Running

LINES = 10  # plain lines in a whole run
BAR = 8  # columns of the bar at least


class ShowProgress:
    """An observer that tells round, accuracy, clients trained and estimated, and time left."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._bar: Progress | None = None
        self._began, self._from, self._rounds = 0.0, 0, 0

    def on_start(self, simulation: Simulation) -> None:
        """Shows the bar, or says what starts."""
        self._began = time.perf_counter()
        self._from = min(r.state.round for r in simulation.running)
        self._rounds = max(r.experiment.rounds for r in simulation.running)
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.fields[counted]}", table_column=Column(no_wrap=True)),
                BarColumn(bar_width=self._bar_width),
                TextColumn("{task.description}", table_column=Column(no_wrap=True, ratio=1, overflow="ellipsis")),
                TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True, justify="right")),
                console=self.console,
                expand=True,
            )
            self._bar.start()
            counted = self._counted(self._from)
            self._bar.add_task("starting", total=self._rounds, completed=self._from, counted=counted, left="")

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        """Moves the bar on, or prints a line every tenth of the way."""
        done = min(record.round for _, record in played) + 1
        if self._bar is not None:
            counted, left = self._counted(done), self._time(done)
            room = self.console.width - len(counted) - self._bar_width - len(left) - 3
            text = state_of(played, room)
            self._bar.update(self._bar.task_ids[0], completed=done, description=text, counted=counted, left=left)
        elif done == self._rounds or done % max(1, self._rounds // LINES) == 0:
            print(f"{self._counted(done)}: {state_of(played)}, {self._time(done)}", file=sys.stderr, flush=True)

    def on_end(self, simulation: Simulation) -> None:
        """Leaves the bar as it stands."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    @property
    def _bar_width(self) -> int:
        return max(BAR, min(32, (self.console.width - 72) // 2))

    def _counted(self, done: int) -> str:
        return f"round {done}/{self._rounds}"

    def _time(self, done: int) -> str:
        took = time.perf_counter() - self._began
        if done >= self._rounds:
            return f"took {in_time(took)}"
        return f"{in_time(took / (done - self._from) * (self._rounds - done))} left"


def state_of(played: list[tuple[Running, RoundRecord]], room: int | None = None) -> str:
    """The accuracy after a round and who trained, of one federation or over all of them; in as many words as have
    `room` (columns)."""
    records = [record for _, record in played]
    who = f"{sum(r.trained for r in records)} trained, {sum(r.estimated for r in records)} estimated"
    if len(records) == 1:
        accuracy = f"{records[0].accuracy:.1f} %"
        forms = [f"accuracy {accuracy}, {who}", f"{accuracy}, {who}", accuracy]
    else:
        worst, best = min(r.accuracy for r in records), max(r.accuracy for r in records)
        forms = [
            f"{len(records)} federations, accuracy {worst:.1f} to {best:.1f} %, {who}",
            f"{len(records)} runs, {worst:.1f}–{best:.1f} %, {who}",
            f"{worst:.1f}–{best:.1f} %, {who}",
            f"{worst:.1f}–{best:.1f} %",
        ]
    return next((form for form in forms if room is None or len(form) <= room), forms[-1])


def in_time(seconds: float) -> str:
    """A length of time as one reads it: 12 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
