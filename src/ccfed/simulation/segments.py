"""The clients' pasts on disk, in files of which a checkpoint writes only what is new.

A client's past is true in the newest file that has it. A file of which more than half is out of date is let go, after
what is still true in it was written again: so the files never take much more than twice what the pasts take, and each
past is written about twice at most, however many clients there are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ccfed import files
from ccfed.algorithm import History

PIECE_BYTES = 32 * 2**20
"""At most about this much goes into one file, so that writing and reading take little memory (a few times as much)."""
SMALL_BYTES = 32 * 2**20
"""Pasts that take less than this are written anew each time: then two checkpoints share no file."""


@dataclass(frozen=True)
class Segment:
    """A file of pasts: its name, its checksum, and how many pasts and models were written into it."""

    name: str
    checksum: str
    units: int


@dataclass
class Segments:
    """The files that hold the pasts of a History of `clients` clients, and which of them is true for whom."""

    folder: Path
    clients: int
    segments: dict[int, Segment] = field(default_factory=dict)
    _where: Tensor = field(init=False)  # client -> number of its segment
    _owners: Tensor | None = None  # who has a past, while these are few; None if it must be asked for
    _origins: dict[int, int] = field(default_factory=dict)  # round -> number of the segment with its model
    _alive: dict[int, int] = field(default_factory=dict)  # number of a segment -> pasts and models still true in it

    def __post_init__(self) -> None:
        self._where = torch.full((self.clients,), -1, dtype=torch.int32)

    def write(self, history: History, changed: Tensor, next_name: Callable[[str], str]) -> None:
        """Writes the pasts of the `changed` clients (int64 [C]) and the models that are new."""
        origins = history.origins
        if history.stored_bytes() + len(origins) * history.like.nbytes <= SMALL_BYTES:
            # Whoever asks the history for its owners looks at all clients: here that is done once, at most.
            owners = history.owners() if self._owners is None else torch.cat([self._owners, changed]).unique()
            self.forget()
            changed = self._owners = owners
        else:
            self._owners = None
        self._leave(changed)
        for gone in self._origins.keys() - origins.keys():
            self._alive[self._origins.pop(gone)] -= 1
        stale = [n for n, segment in self.segments.items() if 2 * self._alive[n] <= segment.units]
        kept = [(self._where == n).nonzero().flatten() for n in stale]
        changed = torch.cat([changed, *kept]).unique()
        self._leave(changed)
        for n in stale:
            del self.segments[n], self._alive[n]
        self._origins = {r: n for r, n in self._origins.items() if n in self.segments}
        new_models = sorted(origins.keys() - self._origins.keys())
        each = max(1, PIECE_BYTES // max(1, history.like.nbytes))
        for clients in changed.split(each) if len(changed) else ():
            self._add(next_name("pasts"), history.past_of(clients), clients, [])
        for begin in range(0, len(new_models), each):
            rounds = new_models[begin : begin + each]
            models = {"origins": torch.stack([origins[r] for r in rounds]), "origin_rounds": torch.tensor(rounds)}
            self._add(next_name("origins"), models, torch.zeros(0, dtype=torch.int64), rounds)

    def forget(self) -> None:
        """Knows of no files any more: all is written again the next time."""
        self._where[slice(None) if self._owners is None else self._owners] = -1
        self.segments, self._origins, self._alive, self._owners = {}, {}, {}, None

    def described(self) -> list[list[Any]]:
        """What `read` needs, as JSON knows it: name, checksum and units of each file, oldest first."""
        return [[segment.name, segment.checksum, segment.units] for segment in self.segments.values()]

    def read(self, described: list[list[Any]], history: History) -> None:
        """Puts the pasts in the files that `described` lists back into `history`, which has none."""
        self.forget()
        origins: dict[int, Tensor] = {}
        for number, (name, checksum, units) in enumerate(described):
            tensors = files.load(self.folder / name, checksum).tensors
            self.segments[number], self._alive[number] = Segment(name, checksum, units), 0
            if "clients" in tensors:
                history.put_back(tensors)
                self._arrive(tensors["clients"], number)
            for round, model in zip(*_models(tensors), strict=True):
                if round in self._origins:
                    self._alive[self._origins[round]] -= 1
                origins[round], self._origins[round] = model, number
                self._alive[number] += 1
        history.put_back_origins(origins)

    def _add(self, name: str, tensors: dict[str, Tensor], clients: Tensor, rounds: list[int]) -> None:
        checksum = files.save(self.folder / name, tensors, {})
        number = max(self.segments, default=-1) + 1
        self.segments[number] = Segment(name, checksum, len(clients) + len(rounds))
        self._alive[number] = len(rounds)
        self._arrive(clients, number)
        self._origins |= dict.fromkeys(rounds, number)

    def _arrive(self, clients: Tensor, number: int) -> None:
        self._leave(clients)
        self._where[clients] = number
        self._alive[number] += len(clients)

    def _leave(self, clients: Tensor) -> None:
        numbers, counts = self._where[clients].unique(return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            if number >= 0:
                self._alive[number] -= count
        self._where[clients] = -1


def _models(tensors: dict[str, Tensor]) -> tuple[list[int], Iterator[Tensor]]:
    if "origins" not in tensors:
        return [], iter(())
    return tensors["origin_rounds"].tolist(), iter(tensors["origins"].unbind())
