"""Ctrl-C: the first one ends a simulation after the round in progress, with all saved, the second one at once."""

import signal
import sys
from contextlib import suppress
from types import FrameType, TracebackType

from ccfed.records import RoundRecord
from ccfed.simulation import Running, Simulation


class Stopping:
    """While it is entered, Ctrl-C (or the system's wish to end the process) is noted; as an observer, it then stops the
    simulation after the round. `code` is the exit code that is due, None if nobody wished to stop."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Stopping":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.code is not None:
            raise KeyboardInterrupt
        self.code = 128 + number
        with suppress(RuntimeError):  # the signal came while something else was being printed
            print("stopping after this round (once more: at once)", file=sys.stderr, flush=True)

    def on_start(self, simulation: Simulation) -> None:
        """Begins nothing if it is to end already."""
        simulation.stop_requested |= self.code is not None

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        """Stops after this round if somebody wished so."""
        simulation.stop_requested |= self.code is not None

    def on_end(self, simulation: Simulation) -> None:
        """Has nothing left to do."""
