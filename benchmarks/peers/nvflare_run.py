"""NVIDIA FLARE: its FedAvg recipe for PyTorch in its simulator, `--processes` clients at a time."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe import SimEnv
from nvflare_client import MeanAndLap
from workload import from_command_line

if __name__ == "__main__":
    workload = from_command_line()
    here = Path(__file__).parent
    os.environ["PYTHONPATH"] = str(here)
    recipe = FedAvgRecipe(
        model={"class_path": "nvflare_client.Net", "args": {"settings": vars(workload)}},
        min_clients=workload.per_round,
        num_rounds=workload.rounds,
        train_script=str(here / "nvflare_client.py"),
        train_args=shlex.join(sys.argv[1:]),
        aggregator=MeanAndLap(settings=vars(workload)),
    )
    with tempfile.TemporaryDirectory() as folder:
        recipe.execute(SimEnv(num_clients=workload.clients, num_threads=workload.processes, workspace_root=folder))
