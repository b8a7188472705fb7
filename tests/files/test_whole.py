"""A file is there whole or not at all, whatever goes wrong while it is written."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ccfed.files import previous_of, write_whole


def test_the_content_replaces_what_was_there_and_the_previous_stays_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "note.txt"
    write_whole(path, b"one")
    write_whole(path, b"tw", memoryview(b"o"), keep_previous=True)
    assert path.read_bytes() == b"two"
    assert previous_of(path).read_bytes() == b"one"
    assert sorted(os.listdir(path.parent)) == ["note.previous.txt", "note.txt"]


def test_a_full_disk_leaves_the_last_content_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    write_whole(path, b"small")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that a write beyond the limit is an error, not the end
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as trouble:
            write_whole(path, bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert trouble.value.filename == str(path)
    assert path.read_bytes() == b"small"
    assert os.listdir(tmp_path) == ["note.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write into read-only folders")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError) as trouble:
            write_whole(tmp_path / "note.txt", b"content")
    finally:
        tmp_path.chmod(0o700)
    assert trouble.value.filename == str(tmp_path / "note.txt")


def test_a_file_system_that_syncs_no_folders_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    write_whole(tmp_path / "note.txt", b"content")
    assert (tmp_path / "note.txt").read_bytes() == b"content"


def test_a_process_that_is_killed_while_it_writes_leaves_one_content_or_the_other(tmp_path: Path) -> None:
    path = tmp_path / "note.bin"
    code = f"""
from pathlib import Path
from ccfed.files.whole import write_whole
while True:
    for letter in (b"a", b"b"):
        write_whole(Path({str(path)!r}), letter * 3_000_000)
        print("written", flush=True)
"""
    for rounds in range(1, 4):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(rounds):
            process.stdout.readline()
        process.kill()
        process.communicate()
        content = path.read_bytes()
        assert len(content) == 3_000_000
        assert len(set(content)) == 1
