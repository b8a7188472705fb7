"""Small data sets in the original file formats, and a local web server that misbehaves on demand."""

import gzip
import hashlib
import io
import struct
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from ccfed.data.formats import cifar_binary, cifar_python, idx_set
from ccfed.data.inputs import Inputs
from ccfed.data.originals import Download, Original, Version

Array = np.ndarray


def sha256(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def idx_bytes(array: Array) -> bytes:
    return struct.pack(f">BBBB{array.ndim}i", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def python2_pickle(images: Array, labels: list[int], key: bytes) -> bytes:
    """A CIFAR batch as Python 2 pickled it, opcode by opcode."""

    def text(value: bytes) -> bytes:
        return b"T" + struct.pack("<i", len(value)) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    shape = number(images.shape[0]) + number(images.shape[1]) + b"\x86"
    kind = (
        b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + 2 * number(-1) + b"K\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + shape + kind + b"\x89" + text(images.tobytes()) + b"tb"
    listed = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(key) + listed + text(b"batch_label") + text(b"one") + b"u."


@dataclass(frozen=True)
class Small:
    """A small data set: what is known of it, its files' contents by version folder, and what they decode to."""

    original: Original
    files: dict[str, dict[str, bytes]]
    train: tuple[Array, Array]
    test: tuple[Array, Array]

    def write(self, folder: Path, version: str) -> Path:
        """Writes the files of one version below `folder`; returns the folder that they lie in."""
        target = folder / version
        target.mkdir(parents=True)
        for name, content in self.files[version].items():
            (target / name).write_bytes(content)
        return target

    def archive(self, path: Path, version: str) -> Path:
        """Writes one version as a .tar.gz."""
        path.write_bytes(tar_bytes(version, self.files[version]))
        return path


def tar_bytes(folder: str, files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in {**files, "readme.html": b"hello" * 1000}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def small_fashion() -> Small:
    random = np.random.default_rng(0)
    arrays = {
        "train-images-idx3-ubyte": random.integers(0, 256, (40, 6, 5), dtype=np.uint8),
        "train-labels-idx1-ubyte": random.integers(0, 3, 40, dtype=np.uint8),
        "t10k-images-idx3-ubyte": random.integers(0, 256, (10, 6, 5), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": random.integers(0, 3, 10, dtype=np.uint8),
    }
    plain = {name: idx_bytes(array) for name, array in arrays.items()}
    zipped = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in plain.items()}
    version = Version({name: sha256(content) for name, content in plain.items()}, idx_set, ("fashion", "."))
    downloads = tuple(
        Download(f"http://127.0.0.1:9/{name}", sha256(content), len(content)) for name, content in zipped.items()
    )
    original = Original("fashion", "Small Fashion", ("a", "b", "c"), Inputs(), (version,), downloads)
    train, test = (
        (arrays[f"{p}-images-idx3-ubyte"][:, None], arrays[f"{p}-labels-idx1-ubyte"]) for p in ("train", "t10k")
    )
    return Small(original, {"fashion": zipped}, train, test)


@pytest.fixture(params=["ten classes", "hundred classes"])
def small_cifar(request: pytest.FixtureRequest) -> Small:
    random = np.random.default_rng(1)
    hundred = request.param == "hundred classes"
    parts = ["train", "test"] if hundred else [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    images = {part: random.integers(0, 256, (6, 3072), dtype=np.uint8) for part in parts}
    labels = {part: random.integers(0, 10, 6, dtype=np.uint8) for part in parts}
    binary, pickled = {}, {}
    for part in parts:
        coarse = [np.full((6, 1), 77, dtype=np.uint8)] if hundred else []
        binary[f"{part}.bin"] = np.concatenate([*coarse, labels[part][:, None], images[part]], 1).tobytes()
        key = b"fine_labels" if hundred else b"labels"
        pickled[part] = python2_pickle(images[part], labels[part].tolist(), key)
    contents = {"cifar-bin": binary, "cifar-py": pickled}
    versions = tuple(
        Version(
            {name: sha256(content) for name, content in files.items()}, decode, (folder, "."), (f"{folder}.tar.gz",)
        )
        for (folder, files), decode in zip(contents.items(), (cifar_binary, cifar_python), strict=True)
    )
    original = Original("cifar", "Small CIFAR", tuple("0123456789"), Inputs(), versions, ())

    def joined(names: list[str]) -> tuple[Array, Array]:
        return (
            np.concatenate([images[name] for name in names]).reshape(-1, 3, 32, 32),
            np.concatenate([labels[name] for name in names]),
        )

    return Small(original, contents, joined(parts[:-1]), joined(parts[-1:]))


@dataclass
class Server:
    """What the web server holds and does. `cuts`: bytes after which the next answers break off, one a request."""

    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    knows_ranges: bool = True
    bytes_per_second: float = float("inf")
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""

    def serves(self, original: Original, files: dict[str, bytes]) -> Original:
        """`original` with these downloads, which the server now holds."""
        self.files |= {f"/{name}": content for name, content in files.items()}
        downloads = [
            Download(f"{self.address}/{name}", sha256(content), len(content)) for name, content in files.items()
        ]
        return Original(**{**vars(original), "downloads": tuple(downloads)})


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            server.requests.append((self.path, asked))
            status = server.statuses.pop(0) if server.statuses else 200
            content = server.files.get(self.path)
            if content is None or status != 200:
                self.send_error(404 if content is None else status)
                return
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and server.knows_ranges else 0
            if start and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            end = min(start + server.cuts.pop(0), len(content)) if server.cuts else len(content)
            step = 20_000
            for begin in range(start, end, step):
                self.wfile.write(content[begin : min(begin + step, end)])
                time.sleep(step / server.bytes_per_second)

        def log_message(self, *_: object) -> None: ...

    return Handler


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    state = Server()
    web = ThreadingHTTPServer(("127.0.0.1", 0), handler(state))
    web.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that was killed mid-way is expected
    state.address = f"http://127.0.0.1:{web.server_port}"
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield state
    web.shutdown()
    thread.join()
    web.server_close()


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """Waits for a condition, for as long as a busy machine may need."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "it never came"
            time.sleep(0.01)

    return wait


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests find data where they put it, and not where the user's environment says."""
    monkeypatch.delenv("CCFED_DATA", raising=False)
