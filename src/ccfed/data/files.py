"""Finds a data set's original files in a folder, checks them, and decodes them."""

import gzip
import hashlib
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ccfed.data.formats import Arrays
from ccfed.data.originals import Original, Version


@dataclass(frozen=True)
class Found:
    """Original files of one version of a data set: in a folder (one path a name of `version.files`), or in an archive.

    `missing` names the files that the folder lacks; empty means that the set is complete.
    """

    original: Original
    version: Version
    paths: Mapping[str, Path]
    archive: Path | None = None
    missing: tuple[str, ...] = ()

    @property
    def place(self) -> Path:
        """The archive, or the folder that the files lie in."""
        return self.archive or next(iter(self.paths.values())).parent

    @property
    def size(self) -> int:
        """The bytes that the files take on disk."""
        return sum(path.stat().st_size for path in ([self.archive] if self.archive else self.paths.values()))


def find(original: Original, folder: Path) -> Found | None:
    """The files of `original` in and just below `folder`: a complete version, or else the most complete one."""
    found = [each for version in original.versions for each in _find_version(original, version, folder)]
    return min(found, key=lambda each: len(each.missing), default=None)


def _find_version(original: Original, version: Version, folder: Path) -> Iterator[Found]:
    for below in version.folders:
        candidates = {name: (folder / below / f"{name}.gz", folder / below / name) for name in version.files}
        paths = {name: path for name, pair in candidates.items() for path in pair[::-1] if path.is_file()}
        if paths:
            yield Found(original, version, paths, missing=tuple(name for name in version.files if name not in paths))
    for name in version.archives:
        if (folder / name).is_file():
            yield Found(original, version, {}, archive=folder / name)


def read(found: Found) -> Arrays:
    """The samples in the files of `found`, each of which is checked against its checksum first.

    A truncated, altered or wrong file ends in a ValueError that names it.
    """
    contents = {}
    for name, path, content in _members(found) if found.archive else _singles(found):
        checksum = found.version.files[name]
        algorithm, _, expected = checksum.partition(":")
        actual = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
        if actual != expected:
            raise ValueError(
                f"{path} is not an original file of {found.original.title}, or it was altered: its content has the "
                f"{algorithm} checksum {actual} instead of {expected}"
            )
        contents[name] = content
    absent = [name for name in found.version.files if name not in contents]
    if absent:
        raise ValueError(f"{found.place} lacks {', '.join(absent)} of {found.original.title}")
    return found.version.decode(contents)


def _singles(found: Found) -> Iterator[tuple[str, str, bytes]]:
    for name, path in found.paths.items():
        with _naming(path):
            content = path.read_bytes()
            yield name, str(path), gzip.decompress(content) if path.suffix == ".gz" else content


def _members(found: Found) -> Iterator[tuple[str, str, bytes]]:
    assert found.archive is not None
    with _naming(found.archive), gzip.open(found.archive) as whole, tarfile.open(fileobj=whole, mode="r:") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            stream = archive.extractfile(member) if member.isfile() and name in found.version.files else None
            if stream is not None:
                yield name, f"{member.name} in {found.archive}", stream.read()
        while whole.read(1 << 20):  # to the very end, where gzip's own checksum stands
            pass


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turns what goes wrong with a file's bytes into a sentence that names the file."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise ValueError(f"{path} is truncated or damaged ({error})") from error
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error})") from error
