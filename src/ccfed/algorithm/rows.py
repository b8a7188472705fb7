"""One vector a client, for those clients that have one: a table that grows by blocks and spills to larger memories."""

import itertools
import math
import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class Block:
    """Rows [rows, width] of a table; `mapping` if they lie in a memory-mapped file."""

    rows: Tensor
    mapping: mmap.mmap | None = None

    def release(self) -> None:
        """Gives the memory of a file's pages back: the system keeps or writes them, and this process stays small."""
        if self.mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED)


@dataclass
class Space:
    """Where blocks of vectors may lie: on the device, then in host memory, then in files under `folder`.

    `device_bytes` and `host_bytes` are what may be used; each block goes to the first place with room for it.
    Without a folder the host takes what is left over. Several tables may share one Space.
    """

    device_bytes: float = math.inf
    host_bytes: float = math.inf
    folder: Path | None = None
    used: dict[str, int] = field(default_factory=lambda: {"device": 0, "host": 0, "file": 0})
    _names: "itertools.count[int]" = field(default_factory=itertools.count)

    def block(self, rows: int, width: int, dtype: torch.dtype, device: torch.device) -> Block:
        """An unwritten block [rows, width] in the first place that has room."""
        size = rows * width * dtype.itemsize
        if self.used["device"] + size <= self.device_bytes:
            self.used["device"] += size
            return Block(torch.empty(rows, width, dtype=dtype, device=device))
        if self.folder is None or self.used["host"] + size <= self.host_bytes:
            self.used["host"] += size
            return Block(torch.empty(rows, width, dtype=dtype))
        mapping = _mapped_file(self.folder, next(self._names), size)
        self.used["file"] += size
        return Block(torch.frombuffer(mapping, dtype=dtype).view(rows, width), mapping)

    def describe(self) -> str:
        """Such as '120 MB on the device, 3 MB in host memory'."""
        names = {"device": "on the device", "host": "in host memory", "file": "in memory-mapped files"}
        parts = [f"{self.used[place] / 1e6:.0f} MB {names[place]}" for place in names if self.used[place]]
        return ", ".join(parts) or "nothing"


def _mapped_file(folder: Path, number: int, size: int) -> mmap.mmap:
    """A file of `size` bytes without a name: the mapping holds it, so nothing is left behind, whatever ends the
    process."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"block-{os.getpid()}-{number}.bin"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        path.unlink()
        if hasattr(os, "posix_fallocate"):
            # A disk that is too full says so now; a write into a hole of a mapped file would end the process.
            os.posix_fallocate(descriptor, 0, size)
        else:
            os.ftruncate(descriptor, size)
        return mmap.mmap(descriptor, size)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


class Rows:
    """A vector [width] for each client that was given one. Memory grows with these, not with the number of clients."""

    def __init__(
        self, clients: int, width: int, dtype: torch.dtype, device: torch.device, space: Space | None = None
    ) -> None:
        self.width, self.dtype, self.device = width, dtype, device
        self.space = space or Space()
        self.slots = torch.full((clients,), -1, dtype=torch.int64)  # on the host: who is where is decided there
        self.filled = 0
        self._blocks: list[Block] = []
        self._block_rows = max(1, min(BLOCK_BYTES // max(1, width * dtype.itemsize), clients))

    def has(self, clients: Tensor) -> Tensor:
        """Whether each of `clients` has a vector: bool [C]."""
        return self.slots[clients] >= 0

    def put(self, clients: Tensor, values: Tensor) -> None:
        """Writes `values` [C, width] as the vectors of `clients` (int64 [C], each once)."""
        new = clients[~self.has(clients)]
        while len(self._blocks) * self._block_rows < self.filled + len(new):
            self._blocks.append(self.space.block(self._block_rows, self.width, self.dtype, self.device))
        self.slots[new] = torch.arange(self.filled, self.filled + len(new))
        self.filled += len(new)
        for block, here, within in self._places(clients):
            target = block.rows
            target[within.to(target.device)] = values[here.to(values.device)].to(target.device, self.dtype)
            block.release()

    def get(self, clients: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The vectors of `clients`, on the device: [C, width], as `dtype` (default: as stored); zeros where there is
        none."""
        out = torch.zeros(len(clients), self.width, dtype=dtype or self.dtype, device=self.device)
        for block, here, within in self._places(clients):
            source = block.rows
            out[here.to(self.device)] = source[within.to(source.device)].to(self.device, out.dtype)
            block.release()
        return out

    def owners(self) -> Tensor:
        """The clients that have a vector, ascending: int64."""
        return (self.slots >= 0).nonzero().flatten()

    def _places(self, clients: Tensor) -> list[tuple[Block, Tensor, Tensor]]:
        """For every block that holds some of `clients`: the block, which of them, and their rows in it."""
        slots = self.slots[clients]
        order = slots.argsort(stable=True)
        order = order[int((slots < 0).sum()) :]
        blocks, counts = (slots[order] // self._block_rows).unique_consecutive(return_counts=True)
        return [
            (self._blocks[block], here, slots[here] % self._block_rows)
            for block, here in zip(blocks.tolist(), order.split(counts.tolist()), strict=True)
        ]
