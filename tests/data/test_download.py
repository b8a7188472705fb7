"""Downloads from a real local web server: slow, cut off, wrong, refused, and by two processes at once."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ccfed import data
from ccfed.data import status
from ccfed.data.download import Patience, fetch

HASTE = Patience(answer=10.0, attempts=3, pause=0.01)
BIG = os.urandom(600_000)


@pytest.fixture
def big(small_fashion, server):
    """A data set that consists of one large download."""
    return server.serves(small_fashion.original, {"big.bin": BIG})


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def test_load_downloads_what_is_found_nowhere(small_fashion, server, tmp_path: Path) -> None:
    original = server.serves(small_fashion.original, small_fashion.files["fashion"])
    loaded = [data.load("fashion", cache=tmp_path, originals={"fashion": original}) for _ in range(2)]
    assert (loaded[0].train_x.numpy() == small_fashion.train[0]).all()
    assert len(server.requests) == 4, "the second load must find the files in the cache"
    assert names(tmp_path / "fashion") == set(small_fashion.files["fashion"])


def test_a_cut_connection_is_taken_up_where_it_broke(big, server, tmp_path: Path) -> None:
    server.cuts = [200_000, 150_000]
    (path,) = fetch(big, tmp_path, HASTE)
    assert path.read_bytes() == BIG
    assert [path for path, _ in server.requests] == ["/big.bin"] * 3
    starts = [int(asked.removeprefix("bytes=").rstrip("-")) for _, asked in server.requests[1:]]
    assert 0 < starts[0] <= 200_000
    assert starts[0] < starts[1] <= 350_000
    assert names(tmp_path) == {"big.bin"}


def test_a_server_that_knows_no_ranges_is_asked_for_everything_again(big, server, tmp_path: Path) -> None:
    server.cuts, server.knows_ranges = [200_000], False
    (path,) = fetch(big, tmp_path, HASTE)
    assert path.read_bytes() == BIG


def test_giving_up_keeps_the_beginning_for_the_next_call(big, server, tmp_path: Path) -> None:
    server.cuts = [200_000, 0, 0, 0]
    with pytest.raises(
        ValueError, match=r"of 600000 bytes came \(the connection broke off\): the same command goes on"
    ):
        fetch(big, tmp_path, HASTE)
    assert names(tmp_path) == {"big.bin.part"}
    server.requests.clear()
    fetch(big, tmp_path, HASTE)
    assert [asked is not None for _, asked in server.requests] == [True]
    assert (tmp_path / "big.bin").read_bytes() == BIG


@pytest.mark.parametrize("kept", [b"something else" * 1000, BIG + b"too long", BIG])
def test_a_left_over_beginning_of_any_kind_does_no_harm(kept: bytes, big, tmp_path: Path) -> None:
    (tmp_path / "big.bin.part").write_bytes(kept)
    fetch(big, tmp_path, HASTE)
    assert names(tmp_path) == {"big.bin"}
    assert (tmp_path / "big.bin").read_bytes() == BIG


def test_wrong_bytes_are_refused_and_thrown_away(big, server, tmp_path: Path) -> None:
    server.files["/big.bin"] = BIG[:-1] + bytes([BIG[-1] ^ 1])
    with pytest.raises(ValueError, match=r"/big\.bin gave a file with the checksum sha256:.* instead of sha256:"):
        fetch(big, tmp_path, HASTE)
    assert names(tmp_path) == set()


def test_a_file_without_end_is_not_received_to_the_end(big, server, tmp_path: Path, monkeypatch) -> None:
    server.files["/big.bin"] = BIG * 50
    largest = []
    unlink = Path.unlink
    monkeypatch.setattr(Path, "unlink", lambda path: (largest.append(path.stat().st_size), unlink(path)))
    with pytest.raises(ValueError, match="gave a file with the checksum"):
        fetch(big, tmp_path, HASTE)
    assert max(largest) < 2 * len(BIG)
    assert names(tmp_path) == set()


def test_a_missing_file_is_refused_at_once(big, server, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(ValueError, match=r"/big\.bin could not be fetched: the server answers 404"):
        fetch(big, tmp_path, HASTE)
    assert len(server.requests) == 1
    assert names(tmp_path) == set()


def test_load_says_what_else_can_be_done(big, server, tmp_path: Path) -> None:
    server.files.clear()
    with pytest.raises(
        ValueError, match=r"404.*put the files of Small Fashion into a folder and name it by --data-dir"
    ) as caught:
        data.load("fashion", cache=tmp_path, originals={"fashion": big})
    assert "\n" not in str(caught.value)


def test_a_server_in_trouble_is_asked_again(big, server, tmp_path: Path) -> None:
    server.statuses = [503, 429]
    fetch(big, tmp_path, HASTE)
    assert (tmp_path / "big.bin").read_bytes() == BIG
    (tmp_path / "big.bin").unlink()
    server.statuses = [503] * 3
    with pytest.raises(ValueError, match="the server answers 503"):
        fetch(big, tmp_path, HASTE)


def test_a_silent_server_is_given_up(big, server, tmp_path: Path) -> None:
    server.bytes_per_second = 5_000  # one packet, then nothing for four seconds
    with pytest.raises(ValueError, match="could not be fetched"):
        fetch(big, tmp_path, Patience(answer=0.3, attempts=1, pause=0.01))


def test_no_connection_is_one_sentence(small_fashion, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(ValueError, match="no connection") as caught:
        fetch(small_fashion.original, tmp_path, HASTE)
    assert "\n" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_one_sentence(big, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match=r"Small Fashion cannot be kept in .*file/below"):
        fetch(big, tmp_path / "file" / "below", HASTE)


def test_get_replaces_a_damaged_file_of_the_cache(small_fashion, server, tmp_path: Path) -> None:
    originals = {"fashion": server.serves(small_fashion.original, small_fashion.files["fashion"])}
    assert status.get("fashion", cache=tmp_path, originals=originals).state == "checked"
    path = tmp_path / "fashion" / "train-images-idx3-ubyte.gz"
    good = path.read_bytes()
    path.write_bytes(good[:100])
    server.requests.clear()
    assert status.get("fashion", cache=tmp_path, originals=originals).state == "checked"
    assert path.read_bytes() == good
    assert server.requests == [("/train-images-idx3-ubyte.gz", None)]


def test_get_downloads_nothing_that_is_there(small_fashion, server, tmp_path: Path) -> None:
    originals = {"fashion": server.serves(small_fashion.original, small_fashion.files["fashion"])}
    folder = small_fashion.write(tmp_path, "fashion")
    row = status.get("fashion", tmp_path, cache=tmp_path / "cache", originals=originals)
    assert (row.state, row.place) == ("checked", str(folder))
    assert server.requests == []


PROCESS = """
import json, sys
from pathlib import Path
from ccfed.data.download import fetch
from ccfed.data.inputs import Inputs
from ccfed.data.originals import Download, Original

address, checksum, size, folder = json.loads(sys.argv[1])
original = Original("big", "Big", (), Inputs(), (), (Download(address, checksum, size),))
fetch(original, Path(folder))
"""


def start(original, folder: Path) -> "subprocess.Popen[str]":
    (item,) = original.downloads
    arguments = json.dumps([item.address, item.checksum, item.size, str(folder)])
    return subprocess.Popen([sys.executable, "-c", PROCESS, arguments], stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_fetch_once(big, server, tmp_path: Path, wait_until) -> None:
    server.bytes_per_second = 300_000
    both = [start(big, tmp_path) for _ in range(2)]
    seen = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], seen
    assert server.requests == [("/big.bin", None)]
    assert (tmp_path / "big.bin").read_bytes() == BIG
    assert names(tmp_path) == {"big.bin"}


@pytest.mark.slow
def test_a_killed_process_leaves_nothing_half_written(big, server, tmp_path: Path, wait_until) -> None:
    server.bytes_per_second = 100_000
    process = start(big, tmp_path)
    part = tmp_path / "big.bin.part"
    wait_until(lambda: part.exists() and part.stat().st_size > 100_000)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert names(tmp_path) == {"big.bin.part"}
    server.bytes_per_second = float("inf")
    server.requests.clear()
    fetch(big, tmp_path, HASTE)
    assert (tmp_path / "big.bin").read_bytes() == BIG
    assert server.requests[0][1] is not None, "the second process must go on from where the first was killed"
