"""A device's own past: the move of its last training, in a file that it owns.

Flower's `Context.state` is gone when a SuperNode restarts and with each new run; this file is not. It is replaced as a
whole, carries its checksum, and says which run, round and model its move belongs to.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from ccfed.files import Damaged, load, save
from ccfed.flower.wire import BEFORE

_PREFIX = f"{BEFORE}/"


@dataclass(frozen=True, eq=False)
class Past:
    """The last move of `client` in `run`: `move` (its named arrays), made in `round` from the model with the checksum
    `model`. `metrics` are those that the training function returned with it. `before` is the move that it had
    before, of `round_before`, if the server's estimator compares the two (else empty, and -1)."""

    run: str
    client: int
    round: int
    model: str
    move: dict[str, Tensor]
    metrics: dict[str, Any]
    before: dict[str, Tensor] = field(default_factory=dict)
    round_before: int = -1


def path_of(folder: Path, client: int) -> Path:
    """The file of a client."""
    return folder / f"client-{client}.safetensors"


def write(folder: Path, past: Past) -> None:
    """Replaces the client's file, whole or not at all."""
    facts = {
        "run": past.run,
        "client": past.client,
        "round": past.round,
        "model": past.model,
        "metrics": past.metrics,
        "round before": past.round_before,
    }
    tensors = past.move | {_PREFIX + name: tensor for name, tensor in past.before.items()}
    save(path_of(folder, past.client), tensors, facts)


def read(folder: Path, client: int, run: str) -> tuple[Past | None, str]:
    """The client's past in `run`, and why there is none: a missing, damaged or foreign file is no error."""
    path = path_of(folder, client)
    try:
        content = load(path)
        past = _past(content.tensors, content.facts)
    except FileNotFoundError:
        return None, f"{path} is missing"
    except (Damaged, KeyError, TypeError) as error:
        return None, str(error) if isinstance(error, Damaged) else f"{path} is damaged: it lacks {error}"
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror or error}"
    if past.run != run or past.client != client:
        return None, f"{path} belongs to another run or client"
    return past, ""


def _past(tensors: dict[str, Tensor], facts: dict[str, Any]) -> Past:
    """What the file tells; KeyError if it lacks something."""
    move = {name: tensor for name, tensor in tensors.items() if not name.startswith(_PREFIX)}
    before = {name.removeprefix(_PREFIX): tensor for name, tensor in tensors.items() if name.startswith(_PREFIX)}
    who = facts["run"], facts["client"], facts["round"], facts["model"]
    return Past(*who, move, facts["metrics"], before, facts["round before"])
