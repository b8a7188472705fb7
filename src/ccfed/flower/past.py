"""A device's own past: the move of its last training, in a file that it owns.

Flower's `Context.state` is gone when a SuperNode restarts and with each new run; this file is not. It is replaced as a
whole, carries its checksum, and says which run, round and model its move belongs to.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ccfed.files import Damaged, load, save


@dataclass(frozen=True, eq=False)
class Past:
    """The last move of `client` in `run`: `move` (its named arrays), made in `round` from the model with the checksum
    `model`. `metrics` are those that the training function returned with it."""

    run: str
    client: int
    round: int
    model: str
    move: dict[str, Tensor]
    metrics: dict[str, Any]


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
    }
    save(path_of(folder, past.client), past.move, facts)


def read(folder: Path, client: int, run: str) -> tuple[Past | None, str]:
    """The client's past in `run`, and why there is none: a missing, damaged or foreign file is no error."""
    path = path_of(folder, client)
    try:
        content = load(path)
        facts = content.facts
        past = Past(facts["run"], facts["client"], facts["round"], facts["model"], content.tensors, facts["metrics"])
    except FileNotFoundError:
        return None, f"{path} is missing"
    except (Damaged, KeyError, TypeError) as error:
        return None, str(error) if isinstance(error, Damaged) else f"{path} is damaged: it lacks {error}"
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror or error}"
    if past.run != run or past.client != client:
        return None, f"{path} belongs to another run or client"
    return past, ""
