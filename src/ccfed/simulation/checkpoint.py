"""A federation on disk, from which it goes on to the same result as if it had never stopped.

The folder holds one small file, `state.safetensors`: the global model, the server's state, who took part lately, and
the names and checksums of the files with the rest, which are only added to: the clients' pasts (see `segments`), the
older part of the log of rounds, and now and then the counters of all clients. So what a checkpoint costs follows what
happened since the last one, and not the size of the federation. The state before the last is kept, with its files.
"""

import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccfed import files
from ccfed.files import Damaged, Sealed
from ccfed.simulation.identity import Identities, Identity, difference
from ccfed.simulation.running import RoundRecord, Running
from ccfed.simulation.segments import SMALL_BYTES, Segments

FORMAT = 1
STATE = "state.safetensors"
LOG_BYTES = 2**20
"""A log of rounds larger than this becomes a file of its own."""
COUNTED_APART = 2**15
"""The counters of at most so many clients stand in the state; those of more are written for all clients at once."""
PART = re.compile(r"[a-z]+-(\d+)\.safetensors(?:\.new)?")
SERVER = "server."
COUNTERS = ("steps_done", "bytes_up", "bytes_down")


class Refused(ValueError):
    """A run cannot be gone on with, for the reason that the message tells."""


class Checkpoint:
    """Writes one federation's checkpoints to `folder`, and reads them back.

    `identity` says which run it is (see `Identities`).
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        self.folder = folder
        self.identity = identity
        self.engine = ""  # what made the last checkpoint
        self._segments: Segments | None = None
        self._in_use: set[str] = set()  # files of the last checkpoint
        self._number = 0
        self._start_anew()

    @classmethod
    def of(cls, folder: Path, running: Running) -> "Checkpoint":
        """The checkpoints of `running`, which has not begun."""
        return cls(folder, Identities().of(running))

    def _start_anew(self) -> None:
        self._saved = 0  # rounds in the last checkpoint
        self._logs: list[list[Any]] = []  # name and checksum of each file of the log
        self._logged = 0  # rounds in these
        self._everyone: list[Any] | None = None  # name and checksum of the file with the counters of all clients
        self._counted = torch.zeros(0, dtype=torch.int64)  # who took part since that was written
        if self._segments is not None:
            self._segments.forget()

    def save(self, running: Running, extra: dict[str, Any] | None = None, engine: str = "") -> None:
        """Writes everything that `running`, between two rounds, needs to go on; `extra` is kept as it is (JSON)."""
        if self._segments is None:
            self._segments = Segments(self.folder, len(running.steps_done))
        try:
            self._save(running, self._segments, extra or {}, engine)
        except BaseException:
            self._start_anew()  # what was written belongs to no state
            self._remove_remains()
            raise

    def restore(self, running: Running, say: Callable[[str], None] = lambda sentence: None) -> dict[str, Any] | None:
        """Puts `running`, which has not begun, where the last good checkpoint left it; returns the `extra` of then.

        None if there is no checkpoint. `say` hears of a damaged one that was passed over. Refused if the checkpoint
        is that of another run or of another version, or if neither it nor the one before is whole.
        """
        found = self._newest_whole(say)
        if found is None:
            return None
        self._put_back(found, running)
        if found.path != self.folder / STATE:
            os.replace(found.path, self.folder / STATE)  # so that the next one does not take the damaged one along
        extra: dict[str, Any] = found.facts["extra"]
        return extra

    def _save(self, running: Running, segments: Segments, extra: dict[str, Any], engine: str) -> None:
        state = running.state
        selected, trained, _ = _log(running, self._saved)
        if running.finished:
            segments.forget()  # nobody will ask for the pasts
        else:
            changed = selected[trained].unique()
            segments.write(state.history, changed[state.history.knows(changed)], self._next_name)
        self._counted = torch.cat([self._counted, selected]).unique()
        tensors = {"model": state.model, **{SERVER + name: tensor for name, tensor in state.server.items()}}
        tensors |= self._counters(running)
        tensors |= self._tail_of_log(running)
        facts = {
            "format": FORMAT,
            "identity": self.identity,
            "engine": engine,
            "round": state.round,
            "finished": running.finished,
            "diverged": running.diverged,
            "storage": running.storage_bytes(),
            "records": _columns(running.records[self._logged :]),
            "pasts": segments.described(),
            "logs": self._logs,
            "everyone": self._everyone,
            "extra": extra,
        }
        files.save(self.folder / STATE, tensors, facts, keep_previous=True)
        self._saved, self.engine = state.round, engine
        before, self._in_use = self._in_use, set(_files_of(facts))
        if running.finished and sum((self.folder / name).stat().st_size for name in before) > SMALL_BYTES:
            files.previous_of(self.folder / STATE).unlink(missing_ok=True)  # its pasts take too much room to be kept
            before = set()
        self._remove_all_but(self._in_use | before)

    def _tail_of_log(self, running: Running) -> dict[str, Tensor]:
        """Who took part since the last file of the log; nobody, if that was so much that it became a file."""
        selected, trained, starts = _log(running, self._logged)
        tensors = {"selected": selected, "trained": trained, "starts": starts}
        if sum(tensor.nbytes for tensor in tensors.values()) < LOG_BYTES:
            return tensors
        name = self._next_name("log")
        records = _columns(running.records[self._logged :])
        self._logs = [*self._logs, [name, files.save(self.folder / name, tensors, {"records": records})]]
        self._logged = running.state.round
        return self._tail_of_log(running)

    def _counters(self, running: Running) -> dict[str, Tensor]:
        """The counters of who took part since all were written; of nobody, if these were so many that all are
        written now."""
        if len(self._counted) > COUNTED_APART:
            name = self._next_name("counters")
            everyone = {counter: getattr(running, counter) for counter in COUNTERS}
            self._everyone = [name, files.save(self.folder / name, everyone, {})]
            self._counted = self._counted[:0]
        return {"counted": self._counted, **{name: getattr(running, name)[self._counted] for name in COUNTERS}}

    def _newest_whole(self, say: Callable[[str], None]) -> Sealed | None:
        """The newest state whose files are all there and whole."""
        trouble: Damaged | None = None
        for candidate in (self.folder / STATE, files.previous_of(self.folder / STATE)):
            try:
                found = files.load(candidate)
            except FileNotFoundError:
                continue
            except Damaged as error:
                trouble = trouble or error
                continue
            self._refuse_another(found)
            try:
                for name, checksum in _files_of(found.facts).items():
                    files.check(self.folder / name, checksum)
            except FileNotFoundError as error:
                trouble = trouble or Damaged(f"{error.filename} is missing")
            except Damaged as error:
                trouble = trouble or error
            else:
                if trouble is not None:
                    say(f"{trouble}: going on from the checkpoint before, made after round {found.facts['round']}")
                return found
        if trouble is not None:
            raise Refused(f"--resume: {trouble}, and the checkpoint before is not whole: choose another --out")
        return None

    def _refuse_another(self, found: Sealed) -> None:
        version = found.facts.get("format")
        if version != FORMAT:
            raise Refused(
                f"--resume: {self.folder} has a checkpoint of format {version}, but this version of ccfed reads format "
                f"{FORMAT}: go on with the version that wrote it"
            )
        different = difference(found.facts["identity"], self.identity)
        if different is not None:
            raise Refused(
                f"--resume: {self.folder.parent} holds another run ({different}): give the options that it was begun "
                "with, or another --out"
            )

    def _put_back(self, found: Sealed, running: Running) -> None:
        facts, tensors, state = found.facts, found.tensors, running.state
        device = state.model.device
        self._segments = Segments(self.folder, len(running.steps_done))
        self._segments.read(facts["pasts"], state.history)
        state.model = tensors["model"].to(device)
        server = {name.removeprefix(SERVER): t for name, t in tensors.items() if name.startswith(SERVER)}
        state.server = {name: tensor.to(device) for name, tensor in server.items()}
        state.round = self._saved = facts["round"]
        running.diverged = facts["diverged"]
        running.kept_storage = tuple(facts["storage"]) if facts["finished"] else None
        self.engine = facts["engine"]

        running.records, running.took_part = [], []
        self._logs = facts["logs"]
        for name, checksum in self._logs:
            log = files.load(self.folder / name, checksum)
            _put_log_back(running, log.tensors, log.facts["records"])
        self._logged = len(running.records)
        _put_log_back(running, tensors, facts["records"])

        self._everyone, self._counted = facts["everyone"], tensors["counted"]
        counters = {} if self._everyone is None else files.load(self.folder / self._everyone[0]).tensors
        for name in COUNTERS:
            counter = getattr(running, name)
            counter.copy_(counters[name]) if counters else counter.zero_()
            counter[self._counted] = tensors[name]
        self._in_use = set(_files_of(facts))

    def _next_name(self, kind: str) -> str:
        """The name of a new file; no name is used twice in a folder."""
        if not self._number and self.folder.exists():
            self._number = max((number for _, number in self._parts()), default=0)
        self._number += 1
        return f"{kind}-{self._number:06d}.safetensors"

    def _parts(self) -> list[tuple[Path, int]]:
        """The files in the folder that are parts of a checkpoint or remains of one, with their numbers."""
        found = [(path, PART.fullmatch(path.name)) for path in self.folder.iterdir()]
        return [(path, int(part[1])) for path, part in found if part]

    def _remove_remains(self) -> None:
        """Removes what a checkpoint that came to nothing has left: on a full disk it would be in the next one's way."""
        needed: set[str] = set()
        try:
            for state in (self.folder / STATE, files.previous_of(self.folder / STATE)):
                if state.exists():
                    needed |= set(_files_of(files.load(state).facts))
            self._remove_all_but(needed)
        except (OSError, Damaged):
            return  # nothing is removed of which it is not known that nobody needs it

    def _remove_all_but(self, names: set[str]) -> None:
        for path, _ in self._parts():
            if path.name not in names:
                path.unlink()


def _files_of(facts: dict[str, Any]) -> dict[str, str]:
    """The files beside the state that belong to it, with their checksums."""
    everyone = [facts["everyone"]] if facts["everyone"] is not None else []
    return {name: checksum for name, checksum, *_ in [*facts["pasts"], *facts["logs"], *everyone]}


def _log(running: Running, since: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the rounds from `since` on, one after another: the selected clients, who of them trained, and where each
    round starts."""
    rounds = running.took_part[since:]
    selected = np.concatenate([np.zeros(0, np.int64), *(ids for ids, _ in rounds)])
    trained = np.concatenate([np.zeros(0, np.bool_), *(did for _, did in rounds)])
    starts = np.cumsum([0, *(len(ids) for ids, _ in rounds)])
    return torch.from_numpy(selected), torch.from_numpy(trained), torch.from_numpy(starts)


def _columns(records: list[RoundRecord]) -> dict[str, list[Any]]:
    return {field.name: [getattr(record, field.name) for record in records] for field in fields(RoundRecord)}


def _put_log_back(running: Running, tensors: dict[str, Tensor], records: dict[str, list[Any]]) -> None:
    rows = zip(*(records[field.name] for field in fields(RoundRecord)), strict=True)
    running.records += [RoundRecord(*row) for row in rows]
    sizes = tensors["starts"].diff().tolist()
    parts = zip(tensors["selected"].split(sizes), tensors["trained"].split(sizes), strict=True)
    running.took_part += [(selected.numpy(), trained.numpy()) for selected, trained in parts]
