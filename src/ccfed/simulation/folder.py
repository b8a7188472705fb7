"""The folder of a run: settings, who holds what, one row a round, who took part, a summary and the curve."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccfed.files import write_whole
from ccfed.records import RoundRecord, curves, participation, row_text, summary, write_rounds
from ccfed.simulation.facts import facts_of
from ccfed.simulation.loop import Simulation
from ccfed.simulation.results import Run, Runs
from ccfed.simulation.running import Running


class RunFolders:
    """An observer that keeps one folder for each federation up to date while it runs."""

    def __init__(self, folders: dict[tuple[str, int], Path]) -> None:
        self.folders = folders  # (experiment's name, seed) -> folder

    def folder_of(self, running: Running) -> Path:
        """The folder of a federation."""
        return self.folders[running.experiment.name, running.experiment.seed]

    def on_start(self, simulation: Simulation) -> None:
        """Writes the settings, who holds what, and the table of rounds with those of an earlier call, if any."""
        facts = facts_of([running.experiment for running in simulation.running], simulation.task.network)
        for running, known in zip(simulation.running, facts, strict=True):
            folder = self.folder_of(running)
            folder.mkdir(parents=True, exist_ok=True)
            if running.experiment.settings is not None:
                write_whole(folder / "experiment.toml", running.experiment.settings.to_toml().encode())
            write_whole(folder / "federation.npz", packed(known))
            write_rounds(folder / "rounds.csv", running.records)

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        """Adds a row for each federation."""
        for running, record in played:
            with (self.folder_of(running) / "rounds.csv").open("a", newline="") as file:
                file.write(row_text(record))

    def on_end(self, simulation: Simulation) -> None:
        """Writes who took part, the summary and the curve."""
        for running in simulation.running:
            if not running.records:
                continue
            folder = self.folder_of(running)
            run = Run.of(running)
            clients = running.experiment.federation.clients
            who = participation(running.took_part, clients, running.bytes_up, running.bytes_down)
            write_whole(folder / "participation.npz", packed(who | running.storage()))
            device = f"{simulation.device}"
            summary = summary_of(run, simulation.engine_name, device, running.finished)
            write_whole(folder / "summary.json", (json.dumps(summary, indent=2) + "\n").encode())
            picture = io.BytesIO()
            curves(Runs([run])).savefig(picture, format="png")
            write_whole(folder / "accuracy.png", picture.getvalue())


def packed(arrays: dict[str, NDArray[Any]]) -> bytes:
    """The content of an .npz file with these arrays."""
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **arrays)
    return out.getvalue()


def summary_of(run: Run, engine: str, device: str, finished: bool) -> dict[str, Any]:
    """The contents of summary.json."""
    return summary(
        run.records,
        method=run.name,
        seed=run.seed,
        client_steps_full=run.client_steps_full,
        storage_client_bytes=run.storage_client_bytes,
        storage_server_bytes=run.storage_server_bytes,
        finished=finished,
        engine=engine,
        device=device,
    )


def holds_a_run(folder: Path) -> bool:
    """Whether `folder` has anything of a run in it."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
