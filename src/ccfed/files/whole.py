"""One file, written so that a reader finds the old content or the new one, and never a part of it."""

import errno
import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, *pieces: bytes | memoryview, keep_previous: bool = False) -> None:
    """Writes `pieces` one after another as the content of `path`, which is on the disk when this returns.

    The content is written under another name first, and renamed when it is complete. With `keep_previous` the file
    that was there stays beside it (see `previous_of`). An OSError names `path`, and leaves what was there.
    """
    new = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if keep_previous and path.exists():
            # A crash between these two renames leaves only the previous file: whoever reads looks for both.
            os.replace(path, previous_of(path))
        os.replace(new, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            new.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def previous_of(path: Path) -> Path:
    """Where the content before the last is kept: `state.safetensors` has `state.previous.safetensors`."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def _sync_folder(folder: Path) -> None:
    """Puts the new name itself on the disk, where the system lets a folder be opened."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems sync no folders
            raise
    finally:
        os.close(descriptor)
