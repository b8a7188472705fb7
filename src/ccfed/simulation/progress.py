"""What one sees while it runs: a progress bar on a terminal, a plain line now and then elsewhere; on stderr."""

import sys
import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from ccfed.simulation.loop import Simulation
from ccfed.simulation.running import RoundRecord, Running

LINES = 10  # plain lines in a whole run
WIDE = 76  # columns from which the terminal also shows who trained


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
                TextColumn("round {task.completed:.0f}/{task.total:.0f}", table_column=Column(no_wrap=True)),
                BarColumn(bar_width=max(8, min(32, self.console.width // 5))),
                TextColumn("{task.description}", table_column=Column(no_wrap=True, ratio=1, overflow="ellipsis")),
                TimeLeft(self._time_left),
                console=self.console,
                expand=True,
            )
            self._bar.start()
            self._bar.add_task("starting", total=self._rounds, completed=self._from)

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        """Moves the bar on, or prints a line every tenth of the way."""
        done = played[0][1].round + 1
        if self._bar is not None:
            text = state_of(played, short=self.console.width < WIDE)
            self._bar.update(self._bar.task_ids[0], completed=done, description=text)
        elif done == self._rounds or done % max(1, self._rounds // LINES) == 0:
            left = f", {self._time_left(done)} left" if done < self._rounds else ""
            print(f"round {done}/{self._rounds}: {state_of(played)}{left}", file=sys.stderr, flush=True)

    def on_end(self, simulation: Simulation) -> None:
        """Leaves the bar as it stands."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _time_left(self, done: int) -> str:
        took = time.perf_counter() - self._began
        if done <= self._from:
            return "…"
        return in_time(took / (done - self._from) * (self._rounds - done) if done < self._rounds else took)


class TimeLeft(ProgressColumn):
    """The time left, or in the end the time that it took."""

    def __init__(self, time_at: Callable[[int], str]) -> None:
        super().__init__(Column(no_wrap=True, justify="right"))
        self._time_at = time_at

    def render(self, task: Task) -> Text:
        """Such as '12 s left'."""
        return Text(f"{self._time_at(int(task.completed))} {'took' if task.finished else 'left'}")


def state_of(played: list[tuple[Running, RoundRecord]], short: bool = False) -> str:
    """The accuracy after a round and, unless `short`, who trained: of one federation, or over all of them."""
    records = [record for _, record in played]
    if len(played) == 1:
        text = f"accuracy {records[0].accuracy:.1f} %"
    else:
        worst, best = min(r.accuracy for r in records), max(r.accuracy for r in records)
        text = f"{len(played)} federations, accuracy {worst:.1f} to {best:.1f} %"
    if short:
        return text
    return f"{text}, {sum(r.trained for r in records)} trained, {sum(r.estimated for r in records)} estimated"


def in_time(seconds: float) -> str:
    """A length of time as one reads it: 12 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
