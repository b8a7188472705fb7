"""On what it was measured: the machine, and the versions of everything."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import psutil
from setups import CORES, Setup


def machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{processor()}, {CORES} cores, {memory:.0f} GB memory, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load before the run "
        f"{os.getloadavg()[1]:.1f}"
    )


def processor() -> str:
    """The processor's name as the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def versions(setups: set[Setup]) -> str:
    """The version of each peer that was measured, and of the library that it trains with."""
    ask = (
        "import sys; from importlib.metadata import version; "
        "print(*(f'{n} {version(n)}' for n in sys.argv[1:]), sep=', ')"
    )
    found = []
    for peer, (python, distribution) in {s.peer: (s.python, s.distribution) for s in setups}.items():
        names = dict.fromkeys((distribution, "jax" if peer == "fedjax" else "torch"))
        done = subprocess.run([python, "-c", ask, *names], capture_output=True, text=True)
        found.append(done.stdout.strip())
    return "Versions: " + "; ".join(sorted(found))
