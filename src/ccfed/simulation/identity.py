"""What makes a run this run and no other: only what was begun with the same can be gone on with."""

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from ccfed.simulation.experiment import Experiment
from ccfed.simulation.running import Running
from ccfed.simulation.settings import Settings, option

FREE = ("data_dir", "device", "engine", "history_memory")
"""Settings that may change on the way: they say where a run's parts lie and what computes it."""

DIGESTS = ("budgets", "data", "split", "model")
"""Parts of which only a checksum is kept."""

Identity = dict[str, Any]


class Identities:
    """The identities of federations, which share the digests of the data that they share."""

    def __init__(self) -> None:
        self._digests: dict[int, tuple[object, str]] = {}

    def of(self, running: Running) -> Identity:
        """The identity, as JSON knows it, of a federation that has not begun."""
        e = running.experiment
        data, parts = e.federation.data, e.federation.parts
        return {
            "settings": None if e.settings is None else _plain(e.settings),
            "name": e.name,
            "method": _described(e),
            "seed": e.seed,
            "rounds": e.rounds,
            "steps": e.steps,
            "batch_size": e.batch_size,
            "lr": e.lr,
            "participation": e.participation,
            "weights": e.weights,
            "clients": e.federation.clients,
            "budgets": None if e.method.p is None else digest([e.method.p]),
            "data": self._shared(data, [data.train_x, data.train_y, data.test_x, data.test_y]),
            "split": self._shared(parts, [parts.members, parts.offsets]),
            "model": digest([running.state.model]),
            "history_dtype": str(running.state.history.stored_as),
        }

    def _shared(self, owner: object, tensors: list[Tensor]) -> str:
        if id(owner) not in self._digests:
            self._digests[id(owner)] = owner, digest(tensors)  # kept, so that its id is not given to another
        return self._digests[id(owner)][1]


def difference(before: Identity, now: Identity) -> str | None:
    """What differs first, such as '--lr was 0.05 and is 0.1'; None if it is the same run."""
    was, is_now = before.get("settings"), now.get("settings")
    if was is not None and is_now is not None:
        defaults = _plain(Settings())  # of settings that did not exist yet
        for name, value in is_now.items():
            earlier = was.get(name, defaults[name])
            if earlier != value:
                return f"{option(name)} was {_shown(earlier)} and is {_shown(value)}"
    for name, value in now.items():
        if name in DIGESTS and before.get(name) != value:
            return f"its {name} is not what it was"
        if name != "settings" and before.get(name) != value:
            return f"its {name.replace('_', ' ')} was {_shown(before.get(name))} and is {_shown(value)}"
    return None


def digest(tensors: Iterable[Tensor]) -> str:
    """A checksum of types, shapes and numbers."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()[:16]


def _described(e: Experiment) -> str:
    m = e.method
    parts = (m.name, m.schedule.name, m.estimator.name, m.server.name, m.work.__name__, m.keep, m.speaks_for)
    return ", ".join([*parts, *map(str, m.on_server or ())])


def _plain(settings: Settings) -> dict[str, Any]:
    values = asdict(settings)
    return {
        field.name: list(value) if isinstance(value := values[field.name], tuple) else value
        for field in fields(settings)
        if field.name not in FREE
    }


def _shown(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
