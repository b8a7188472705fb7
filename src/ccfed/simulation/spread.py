"""Pieces of work that do not need each other, spread over the machines of a Ray cluster."""

import importlib
import socket
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, TypeVar

import ccfed

T = TypeVar("T")
R = TypeVar("R")

GROUPS_A_SLOT = 3
TRIES = 3
"""So often a piece is begun before it is given up: something in it may be what ends the workers."""


class Lost(RuntimeError):
    """Work could not be done on the cluster, for the reason that the message tells."""


class NoCluster(ValueError):
    """There is no cluster to work on, for the reason that the message tells."""


class Cluster:
    """A Ray cluster that one is connected to; `slots` is the number of pieces it works on at the same time."""

    def __init__(self, ray: Any, address: str, gpus: bool) -> None:
        self._ray, self.address = ray, address
        there = ray.cluster_resources()
        self._needs: dict[str, float] = {"num_cpus": 1}
        self.slots = int(there.get("CPU", 0))
        if gpus and there.get("GPU"):
            self._needs["num_gpus"] = 1
            self.slots = min(self.slots, int(there["GPU"]))
        if self.slots < 1:
            raise NoCluster(f"--ray is {address!r}, but that cluster has no processor to work on")

    def spread(
        self, work: Callable[[T], R], pieces: Sequence[T], say: Callable[[str], None]
    ) -> Generator[tuple[int, R]]:
        """Does `work(piece)` for each of `pieces`, each on one processor (and one GPU, if the cluster has some and
        they are wanted), and gives (number of the piece, result) as they come in.

        If a worker or its machine dies on the way, its piece is done again by another, and `say` hears of it; what was
        done is not done again. An exception of `work` is raised here. `work` and `pieces` must be what Ray can pickle;
        what the pieces share is sent once.
        """
        ray = self._ray
        shared = ray.put((work, list(pieces)))
        task = ray.remote(_do).options(max_retries=0, **self._needs)
        waiting = {task.remote(shared, number, ccfed.__version__): number for number in range(len(pieces))}
        tries = Counter(waiting.values())
        try:
            while waiting:
                (done, *_), _ = ray.wait(list(waiting), num_returns=1)
                number = waiting.pop(done)
                try:
                    result = ray.get(done)
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                except ray.exceptions.RayError as error:  # the worker, its machine, or the result on it is gone
                    if tries[number] == TRIES:
                        raise Lost(f"piece {number} of the work on {self.address} failed {TRIES} times") from error
                    say(f"a worker died: piece {number} of {len(pieces)} is done again")
                    tries[number] += 1
                    waiting[task.remote(shared, number, ccfed.__version__)] = number
                    continue
                del done
                yield number, result
        finally:
            for task_at_work in waiting:
                ray.cancel(task_at_work, force=True)


@contextmanager
def connected(address: str, gpus: bool = True) -> Iterator[Cluster]:
    """The Ray cluster at `address`, such as HOST:PORT, or "auto" for the one that this machine is part of, or "local"
    for one on this machine alone. Raises NoCluster if there is none, or if Ray is not installed."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise NoCluster("--ray needs the package ray: pip install 'ccfed[ray]'") from error
    with redirect_stdout(sys.stderr):  # Ray tells what it notices on standard output, where results go
        try:
            _knock(address)
            ray.init(address, log_to_driver=False, logging_level="error", ignore_reinit_error=True)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            reason = str(error).strip().splitlines()[0]
            raise NoCluster(f"--ray is {address!r}, where no Ray cluster answers: {reason}") from error
        try:
            yield Cluster(ray, address, gpus)
        finally:
            ray.shutdown()


def shared_out(items: Sequence[T], slots: int) -> list[list[T]]:
    """The items in groups, of which each slot gets about three: they even out, and little is lost with a worker."""
    each = max(1, len(items) // (GROUPS_A_SLOT * slots))
    return [list(items[begin : begin + each]) for begin in range(0, len(items), each)]


def _knock(address: str) -> None:
    """OSError unless somebody answers at HOST:PORT: Ray itself would wait for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _do(shared: tuple[Callable[[T], R], list[T]], number: int, version: str) -> R:
    if version != ccfed.__version__:
        raise Lost(f"a worker has ccfed {ccfed.__version__}, but this machine has {version}: they must be the same")
    work, pieces = shared
    return work(pieces[number])
