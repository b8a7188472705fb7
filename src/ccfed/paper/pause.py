"""Runs that were stopped on their way: one file a run, from which it goes on to the same result."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ccfed.simulation import RoundRecord, Running


def save(path: Path, running: Running, extra: dict[str, Any]) -> None:
    """Writes everything a federation needs to go on after its last finished round; complete or not at all."""
    state = running.state
    content = {
        "round": state.round,
        "model": state.model.cpu(),
        "server": {name: tensor.cpu() for name, tensor in state.server.items()},
        "history": {name: tensor.cpu() for name, tensor in state.history.tensors().items()},
        "steps_done": running.steps_done,
        "bytes_up": running.bytes_up,
        "bytes_down": running.bytes_down,
        "records": [asdict(record) for record in running.records],
        "took_part": [(torch.from_numpy(ids), torch.from_numpy(did)) for ids, did in running.took_part],
        "extra": extra,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    torch.save(content, new)
    os.replace(new, path)


def restore(path: Path, running: Running) -> dict[str, Any]:
    """Puts a federation that has not begun where `save` found it; returns the `extra` of then."""
    content = torch.load(path, weights_only=True)
    state = running.state
    state.round = content["round"]
    device = state.model.device
    state.model = content["model"].to(device)
    state.server = {name: tensor.to(device) for name, tensor in content["server"].items()}
    state.history.restore(content["history"])
    for name in ("steps_done", "bytes_up", "bytes_down"):
        getattr(running, name).copy_(content[name])
    running.records[:] = [RoundRecord(**values) for values in content["records"]]
    running.took_part[:] = [(np.asarray(ids), np.asarray(did)) for ids, did in content["took_part"]]
    extra: dict[str, Any] = content["extra"]
    return extra
