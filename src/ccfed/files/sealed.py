"""Tensors and JSON in one safetensors file that carries the checksum of its whole content.

The JSON stands in the file's header, and so does the SHA-256 of all bytes of the file, taken with zeros in its own
place: the file stays one that any reader of safetensors opens.
"""

import hashlib
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from ccfed.files.whole import previous_of, write_whole

_EMPTY = "0" * 64
_MARK = b'"sha256":"'
LONGEST_HEADER = 10**8  # what the format allows


class Damaged(ValueError):
    """A file is not what was written: cut off, altered, or of another making."""


@dataclass(frozen=True, eq=False)
class Sealed:
    """The content of a file: `tensors` by name (on the host), `facts` as JSON knows them, and the file's `checksum` and
    `path`."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    checksum: str
    path: Path


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, keep_previous: bool = False) -> str:
    """Writes `tensors` and `facts` (anything that JSON takes) to `path`, whole or not at all; returns the checksum."""
    content = safetensors.torch.save(_apart(tensors), {"facts": json.dumps(facts), "sha256": _EMPTY})
    place = content.index(_MARK) + len(_MARK)
    checksum = hashlib.sha256(content).hexdigest()
    rest = memoryview(content)
    write_whole(path, rest[:place], checksum.encode(), rest[place + 64 :], keep_previous=keep_previous)
    return checksum


def load(path: Path, checksum: str | None = None) -> Sealed:
    """Reads what `save` wrote; Damaged if it is not that, or not the file of this `checksum`."""
    content = path.read_bytes()
    facts, noted = _read_seal(path, io.BytesIO(content), checksum)
    try:
        return Sealed(safetensors.torch.load(content), facts, noted, path)
    except SafetensorError as error:
        raise Damaged(f"{path} is damaged: {error}") from error


def check(path: Path, checksum: str | None = None) -> None:
    """Reads the file piece by piece; Damaged if it is not whole, or not the file of this `checksum`."""
    with path.open("rb") as file:
        _read_seal(path, file, checksum)


def load_newest(path: Path, say: Callable[[str], None]) -> Sealed | None:
    """The content of `path`, or of the one before it if that is missing or damaged; None if there is neither.

    `say` hears a sentence if a damaged file was passed over. Damaged is raised if there is no other.
    """
    trouble: Damaged | None = None
    for candidate in (path, previous_of(path)):
        try:
            content = load(candidate)
        except FileNotFoundError:
            continue
        except Damaged as error:
            trouble = trouble or error
            continue
        if trouble is not None:
            say(f"{trouble}; the one before it is used")
        return content
    if trouble is not None:
        raise trouble
    return None


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the host, each in memory of its own and of exactly its size, as the format wants them."""
    out: dict[str, Tensor] = {}
    seen = set()
    for name, tensor in tensors.items():
        here = tensor.detach().cpu().contiguous()
        storage = here.untyped_storage()
        if storage.nbytes() != here.nbytes or storage.data_ptr() in seen:
            here = here.clone()
        seen.add(storage.data_ptr())
        out[name] = here
    return out


def _read_seal(path: Path, file: BinaryIO, checksum: str | None) -> tuple[dict[str, Any], str]:
    """The facts and the checksum in a file, whose content is checked."""
    begin = file.read(8)
    header = file.read(min(int.from_bytes(begin, "little"), LONGEST_HEADER))
    try:
        metadata = json.loads(header)["__metadata__"]
        facts, noted = json.loads(metadata["facts"]), metadata["sha256"]
        place = header.index(_MARK) + len(_MARK)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{path} is damaged: its header cannot be read") from error
    found = hashlib.sha256(begin)
    found.update(header[:place] + _EMPTY.encode() + header[place + len(_EMPTY) :])
    while piece := file.read(2**20):
        found.update(piece)
    if found.hexdigest() != noted:
        raise Damaged(f"{path} is damaged: its content does not have the checksum that it names")
    if checksum is not None and noted != checksum:
        raise Damaged(f"{path} is not the file that belongs here: its checksum is another")
    return facts, noted
