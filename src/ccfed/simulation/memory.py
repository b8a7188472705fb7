"""Where the clients' pasts lie: on the device, in host memory, or in memory-mapped files, by their size."""

from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import torch

from ccfed.algorithm import Space
from ccfed.simulation.experiment import Experiment
from ccfed.simulation.results import in_bytes
from ccfed.simulation.settings import sizes_of

STORED = {"float32": None, "bfloat16": torch.bfloat16}
"""The types that --history-dtype names; None is the model's own."""

GROUPS = (
    (".", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Where Linux tells how much memory a container may use and does, in both versions of its control groups."""


def space_for(
    experiments: Sequence[Experiment], text: str, device: torch.device, folder: Path, say: Callable[[str], None]
) -> Space:
    """The Space for the pasts of `experiments` by --history-memory `text`; `say` hears what was chosen.

    With "auto", half of what is free on the device, then half of what is free on the host, then files in `folder`.
    """
    sizes = sizes_of(text)
    if sizes is None:
        host = free_on_host() / 2
        sizes = (torch.cuda.mem_get_info(device)[0] / 2, host) if device.type == "cuda" else (host, 0.0)
    space = Space(*sizes, folder)
    expected = sum(map(bytes_of_pasts, experiments))
    if expected:
        say(f"pasts take up to {_places(expected, space, device)}")
    return space


def free_on_host(groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes of host memory that are free, of those that a container may use if this is one."""
    free = float(psutil.virtual_memory().available)
    for folder, limit, used, cache in GROUPS:
        try:
            most = int((groups / folder / limit).read_text())  # not a number where there is no limit
            taken = int((groups / folder / used).read_text())
            told = dict(line.split() for line in (groups / folder / "memory.stat").read_text().splitlines())
            taken -= int(told[cache])  # what the system keeps of files it gives back
        except (OSError, ValueError, KeyError):
            continue
        free = min(free, max(0, most - taken))
    return free


def bytes_of_pasts(experiment: Experiment) -> int:
    """The most that the moves and notes of all clients which can come to train may take."""
    e, rule = experiment, experiment.method.estimator
    if not rule.keeps:
        return 0
    network = e.make_network()
    width = network.size * stored_as(e).itemsize + rule.state_size * network.flat().dtype.itemsize
    return min(e.federation.clients, e.rounds * e.selected) * width


def stored_as(experiment: Experiment) -> torch.dtype:
    """The type in which an experiment's pasts are kept."""
    chosen = None if experiment.settings is None else STORED[experiment.settings.history_dtype]
    return chosen or experiment.make_network().flat().dtype


def _places(expected: float, space: Space, device: torch.device) -> str:
    """Such as '40.0 GB: 11.2 GB in memory, 28.8 GB in memory-mapped files in runs/x'."""
    rooms = {"on the device": space.device_bytes, "in host memory": space.host_bytes}
    if device.type == "cpu":
        rooms = {"in memory": space.device_bytes + space.host_bytes}
    rooms[f"in memory-mapped files in {space.folder}"] = float("inf")
    parts, left = [], expected
    for place, room in rooms.items():
        if taken := min(left, room):
            parts.append((taken, place))
            left -= taken
    if len(parts) == 1:
        return f"{in_bytes(expected)}, {parts[0][1]}"
    return f"{in_bytes(expected)}: " + ", ".join(f"{in_bytes(taken)} {place}" for taken, place in parts)
