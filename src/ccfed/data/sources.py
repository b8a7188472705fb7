"""Where data sets come from: `load` by name, and the places that are looked through, in order.

First the folder named by --data-dir or $CCFED_DATA, then where Linux distributions put data sets, then the user's
cache, and if the files are nowhere, a download into the cache. The digits are in the package.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ccfed.data.dataset import Dataset
from ccfed.data.files import Found, find, read
from ccfed.data.formats import Arrays
from ccfed.data.inputs import Inputs
from ccfed.data.originals import ORIGINALS, Original
from ccfed.data.own import from_npz
from ccfed.data.synthetic import synthetic

if TYPE_CHECKING:
    from ccfed.data.download import Patience

NAMES = ("digits", "synthetic", *ORIGINALS)
"""The data sets that `load` knows by name."""

DIGITS = Inputs(scale=1 / 16, mean=(0.305,), std=(0.376,))
DIGITS_SHA256 = "b943e521d0b2309c6de6997e28c22b7752dc3ee160a871a753b6d386cddf417a"


def load(
    name: str | Path,
    data_dir: str | Path | None = None,
    *,
    samples: int = 10_000,
    cache: Path | None = None,
    originals: Mapping[str, Original] = ORIGINALS,
) -> Dataset:
    """The data set called `name`, or the one in the .npz file of this path (see `from_npz`).

    Its original files are looked for in `data_dir` (or $CCFED_DATA), where the system keeps data sets, and in the
    user's `cache`; what is found nowhere is downloaded into the cache. Every file's checksum is checked before use.
    `originals` holds the data sets that have original files. "synthetic" is made up, with so many `samples`.
    """
    name = str(name)
    if name == "digits":
        return digits()
    if name == "synthetic":
        return synthetic(samples)
    if name.endswith(".npz"):
        return from_npz(name)
    original = known(name, originals)
    found = locate(original, data_dir, cache) or download(original, cache)
    return Dataset(original.name, *read_or_advise(found, cache), original.classes, original.inputs)


def digits() -> Dataset:
    """The embedded data set: 1797 hand-written digits of 8x8 pixels, 36 of each of the ten held out for testing."""
    with resources.as_file(resources.files("ccfed.data") / "embedded" / "digits.npz") as path:
        if hashlib.sha256(path.read_bytes()).hexdigest() != DIGITS_SHA256:
            raise ValueError(f"{path} was altered: install ccfed again")
        return replace(from_npz(path), inputs=DIGITS)


def known(name: str, originals: Mapping[str, Original] = ORIGINALS) -> Original:
    """The data set with original files that is called `name`; an unknown name is refused with the nearest known one."""
    if name in originals:
        return originals[name]
    names = ("digits", "synthetic", *originals)
    near = get_close_matches(name, names, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"--data {name!r} is unknown{hint}: choose {', '.join(names)} or the path of an .npz file")


def default_cache() -> Path:
    """The folder of the user's cache for ccfed, such as ~/.cache/ccfed."""
    import pooch  # only who looks into the cache needs it

    return Path(pooch.os_cache("ccfed"))


def places(original: Original, data_dir: str | Path | None = None, cache: Path | None = None) -> Iterator[Path]:
    """The folders in which the files of `original` are looked for, in this order; the cache only if need be."""
    option, named = ("--data-dir", data_dir) if data_dir else ("$CCFED_DATA", os.environ.get("CCFED_DATA"))
    folders = []
    if named:
        folder = Path(named).expanduser()
        if not folder.is_dir():
            raise ValueError(f"{option} {named} is no folder: give the folder that holds the original files")
        folders.append(folder)
    own = ((cache or default_cache()) / name for name in (original.name,))
    return chain(folders, map(Path, original.system_folders), own)


def locate(original: Original, data_dir: str | Path | None = None, cache: Path | None = None) -> Found | None:
    """The first complete set of files of `original` in its `places`; None if there is none."""
    candidates = (find(original, folder) for folder in places(original, data_dir, cache))
    return next((found for found in candidates if found and not found.missing), None)


def download(original: Original, cache: Path | None = None, patience: "Patience | None" = None) -> Found:
    """Downloads `original` into the cache, unless it is there."""
    from ccfed.data.download import fetch  # only who downloads needs its libraries

    folder = (cache or default_cache()) / original.name
    try:
        fetch(original, folder, patience)
    except ValueError as error:
        raise ValueError(
            f"{error}; or put the files of {original.title} into a folder and name it by --data-dir"
        ) from error
    found = find(original, folder)
    assert found is not None, f"the downloads of {original.name} are none of its versions"
    return found


def read_or_advise(found: Found, cache: Path | None = None) -> Arrays:
    """`read`, with a word on what to do if a file of the cache is damaged."""
    try:
        return read(found)
    except ValueError as error:
        if found.place.is_relative_to(cache or default_cache()):
            raise ValueError(f"{error}; `ccfed data get {found.original.name}` fetches it anew") from error
        raise
