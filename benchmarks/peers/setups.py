"""What is measured: each peer in the forms in which its users would run it on this machine."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from workload import DEFAULTS

HERE = Path(__file__).parent
VENVS = HERE / ".venvs"
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
BEST = 0  # as many threads as made the plain loop fastest


@dataclass(frozen=True)
class Setup:
    """One row: a peer's script, in how many processes and threads it runs. `distribution` names its version."""

    peer: str
    title: str
    script: str
    distribution: str
    processes: int = 1
    threads: int = 1
    engine: str = ""
    note: str = ""

    @property
    def venv(self) -> Path | None:
        """Its environment; None for ccfed, which is measured as it is installed here."""
        return None if self.peer == "ccfed" else VENVS / self.peer

    @property
    def python(self) -> str:
        return sys.executable if self.venv is None else str(self.venv / "bin" / "python")


SETUPS = (
    Setup("plain", "plain loop, 1 thread", "plain_loop.py", "torch"),
    Setup("plain", f"plain loop, {CORES} threads", "plain_loop.py", "torch", threads=CORES),
    Setup("plain", f"plain loop, {CORES} processes", "plain_loop.py", "torch", processes=CORES),
    Setup("ccfed", "ccfed, one by one", "ccfed_run.py", "ccfed", threads=BEST, engine="one-by-one"),
    Setup("ccfed", "ccfed, together", "ccfed_run.py", "ccfed", threads=CORES, engine="together"),
    Setup("flower", f"Flower, {CORES} actors", "flower_run.py", "flwr", processes=CORES),
    Setup("pfl", "pfl-research", "pfl_run.py", "pfl", threads=BEST),
    Setup("pfl", f"pfl-research, {CORES} processes", "pfl_run.py", "pfl", processes=CORES),
    Setup("fedlab", "FedLab", "fedlab_run.py", "fedlab", threads=BEST),
    Setup("fluke", "fluke", "fluke_run.py", "fluke-fl", threads=BEST),
    Setup("flgo", "FLGo", "flgo_run.py", "flgo", threads=BEST),
    Setup("fedjax", "FedJAX", "fedjax_run.py", "fedjax", threads=CORES, note="XLA takes all cores"),
    Setup("nvflare", "NVIDIA FLARE", "nvflare_run.py", "nvflare", processes=8, note="a process a client"),
)
PEERS = tuple(dict.fromkeys(setup.peer for setup in SETUPS))


def cannot(setup: Setup, workload: str) -> str | None:
    """Why a row is not measured on this workload and machine, if so."""
    clients = DEFAULTS[workload]["clients"]
    if setup.peer == "nvflare" and clients > setup.processes:
        return (
            f"not measured: its simulator wants a process a client ({clients} of about 0.4 GB); with fewer it starts a "
            "process for each client anew in each round, which takes seconds each"
        )
    return None
