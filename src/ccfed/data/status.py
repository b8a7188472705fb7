"""What `ccfed data` shows and does: which data sets are there, get one, check one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ccfed.data.download import Patience
from ccfed.data.files import Found, find
from ccfed.data.originals import ORIGINALS, Original
from ccfed.data.sources import default_cache, digits, download, known, locate, places, read_or_advise

State = Literal["embedded", "there", "checked", "damaged", "incomplete", "missing"]


@dataclass(frozen=True)
class Status:
    """One data set's line in the list.

    `state`: "embedded" in the package, "there" (all files present, checksums not looked at), "checked" (checksums
    right), "damaged" (a checksum is wrong), "incomplete" or "missing". `place` is the folder or archive, `size` the
    bytes on disk (if missing: to download), `note` a sentence on what is to be done, or empty.
    """

    name: str
    state: State
    place: str
    size: int
    note: str = ""


def list_all(
    data_dir: str | Path | None = None,
    *,
    cache: Path | None = None,
    originals: Mapping[str, Original] = ORIGINALS,
) -> list[Status]:
    """One line for each data set known by name, from a look at which files exist; no checksum is computed."""
    return [_embedded(), *(_status(original, data_dir, cache) for original in originals.values())]


def get(
    name: str,
    data_dir: str | Path | None = None,
    *,
    cache: Path | None = None,
    originals: Mapping[str, Original] = ORIGINALS,
    patience: Patience | None = None,
) -> Status:
    """Makes sure that the data set `name` is there and whole, downloading what is not; damaged files of the cache are
    replaced, damaged files elsewhere are refused."""
    if name == "digits":
        return _embedded()
    original = known(name, originals)
    folder = (cache or default_cache()) / original.name
    found = locate(original, data_dir, cache)
    if found is None or found.place.is_relative_to(folder):
        found = download(original, cache, patience)
    return _checked(found, cache)


def check(
    name: str,
    data_dir: str | Path | None = None,
    *,
    cache: Path | None = None,
    originals: Mapping[str, Original] = ORIGINALS,
) -> Status:
    """Reads and checks the files that `load` would use; a damaged one ends in a ValueError that names it."""
    if name == "digits":
        return _embedded()
    original = known(name, originals)
    found = locate(original, data_dir, cache)
    return _status(original, data_dir, cache) if found is None else _checked(found, cache)


def _embedded() -> Status:
    held = digits()
    size = held.train_x.nbytes + held.test_x.nbytes
    return Status("digits", "embedded", "in the package", size)


def _checked(found: Found, cache: Path | None) -> Status:
    read_or_advise(found, cache)
    return Status(found.original.name, "checked", str(found.place), found.size)


def _status(original: Original, data_dir: str | Path | None, cache: Path | None) -> Status:
    found = locate(original, data_dir, cache)
    if found:
        return Status(original.name, "there", str(found.place), found.size)
    for folder in places(original, data_dir, cache):
        partial = find(original, folder)
        if partial:
            lacks = f"lacks {', '.join(partial.missing)}"
            return Status(original.name, "incomplete", str(partial.place), partial.size, lacks)
    size = sum(item.size for item in original.downloads)
    return Status(original.name, "missing", "", size, f"`ccfed data get {original.name}` downloads it")
