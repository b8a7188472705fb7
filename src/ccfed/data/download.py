"""Fetches original files into a folder: with a progress bar, resumable, checked, and one process at a time."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests
from filelock import FileLock, Timeout
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ccfed.data.originals import Download, Original

CHUNK = 1 << 16


@dataclass(frozen=True)
class Patience:
    """How long to try: seconds to wait for an answer, attempts in a row without a new byte, seconds between them."""

    answer: float = 30.0
    attempts: int = 4
    pause: float = 1.0


def fetch(original: Original, folder: Path, patience: Patience | None = None) -> list[Path]:
    """Brings all files of `original` into `folder` and returns their paths.

    Files that are there and whole are left alone. A file appears under its name only when it is complete and its
    checksum right; until then it grows as NAME.part, from which the next call goes on. Of two processes, the second
    waits and then finds the files.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone_in(folder):
            return [_fetch_one(item, folder, patience or Patience()) for item in original.downloads]
    except OSError as error:
        if isinstance(error, requests.RequestException):
            raise
        raise ValueError(f"{original.title} cannot be kept in {folder} ({error.strerror or error})") from error


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Holds the folder's lock, which the operating system releases if the process dies."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0.2)
    except Timeout:
        print(f"waiting for another process that fetches into {folder}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _fetch_one(item: Download, folder: Path, patience: Patience) -> Path:
    final, part = folder / item.file, folder / f"{item.file}.part"
    algorithm = item.checksum.split(":")[0]

    def checksum(path: Path) -> str:
        return f"{algorithm}:{pooch.file_hash(str(path), alg=algorithm)}"

    if final.exists() and checksum(final) == item.checksum:
        return final
    resumed = part.exists()
    _complete(item, part, patience)
    if resumed and checksum(part) != item.checksum:
        part.unlink()  # its beginning may be from another version of the file: once more, from the start
        _complete(item, part, patience)
    found = checksum(part)
    if found != item.checksum:
        part.unlink()
        raise ValueError(
            f"{item.address} gave a file with the checksum {found} instead of {item.checksum}: it was thrown away"
        )
    part.replace(final)
    return final


def _complete(item: Download, part: Path, patience: Patience) -> None:
    """Makes `part` as long as the server says the file is, in as many attempts as bring something new."""
    idle = 0
    with _progress(item) as progress:
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                _receive(item, part, progress, patience.answer)
                return
            except requests.RequestException as error:
                idle = 0 if part.exists() and part.stat().st_size > before else idle + 1
                reason = _reason(error)
            if idle >= patience.attempts:
                size = part.stat().st_size if part.exists() else 0
                raise ValueError(
                    f"{item.address} could not be fetched, {size} of {item.size} bytes came ({reason}): "
                    "the same command goes on from there"
                )
            time.sleep(patience.pause * 2 ** max(idle - 1, 0))


def _receive(item: Download, part: Path, progress: Progress, answer: float) -> None:
    """One request for what `part` still lacks."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(item.address, headers=headers, stream=True, timeout=answer) as response:
        if response.status_code == 416:  # nothing is left to send: whole, or not this file's beginning
            return
        if 400 <= response.status_code < 500 and response.status_code not in (408, 429):
            raise ValueError(
                f"{item.address} could not be fetched: the server answers {response.status_code} {response.reason}"
            )
        response.raise_for_status()
        goes_on = response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if not goes_on:
            have = 0
        length = response.headers.get("Content-Length")
        task = progress.task_ids[0]
        progress.update(task, completed=have, total=have + int(length) if length else item.size)
        with part.open("ab" if goes_on else "wb") as file:
            for chunk in response.iter_content(CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress.update(task, advance=len(chunk))
                if have > item.size:
                    return  # it is another file, and may have no end


def _progress(item: Download) -> Progress:
    """A progress bar on a terminal; elsewhere one line that says what is being fetched."""
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"fetching {item.address} ({item.size / 1e6:.1f} MB)", file=sys.stderr)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=console, disable=not console.is_terminal)
    progress.add_task(item.file, total=item.size)
    return progress


def _reason(error: requests.RequestException) -> str:
    """What went wrong, in a few words: the innermost cause, without the library's wrapping."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}"
    if isinstance(error, requests.Timeout):
        return "the server does not answer"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    return "no connection"
