"""On what it was measured: the machine, and the versions of everything."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import psutil
import torch


def processor() -> str:
    """The processor's name as the system tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def machine(device: torch.device | None = None) -> str:
    """One line: GPU if there is one, processor, cores, memory, system, Python, time, and how busy it was before."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = f"{torch.cuda.get_device_name(device)}, " if device is not None and device.type == "cuda" else ""
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{gpu}{processor()}, {cores} cores, {memory:.0f} GB memory, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load before the run "
        f"{os.getloadavg()[1]:.1f}"
    )
