"""The machine that makes the runs: its name, its memory, and how it is asked to train."""

import gc
import os
from dataclasses import dataclass, field
from typing import Any

import torch

from ccfed.simulation.simulate import find_device
from ccfed.training import Precision


@dataclass(frozen=True)
class Machine:
    """Where and how cells are run, and what is noted of it beside each result."""

    device: str = "auto"
    engine: str = "auto"
    precision: Precision = "float32"
    made: dict[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> torch.device:
        """The device as PyTorch knows it."""
        return find_device(self.device)

    def describe(self) -> str:
        """The processor's name."""
        if self.place.type == "cuda":
            return torch.cuda.get_device_name(self.place)
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' * (threads > 1)}"

    def free_bytes(self) -> float:
        """The memory that is free on the device (on a processor without psutil, what the system says is free)."""
        if self.place.type == "cuda":
            return float(torch.cuda.mem_get_info(self.place)[0])
        try:
            import psutil
        except ModuleNotFoundError:
            return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        return float(psutil.virtual_memory().available)

    def tidy_up(self) -> None:
        """Frees what a simulation held that is over: it and its engine refer to each other, so they do not go at
        once."""
        gc.collect()
        if self.place.type == "cuda":
            torch.cuda.empty_cache()
