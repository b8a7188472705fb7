"""The folder of a run: settings, who holds what, one row a round, who took part, a summary and the curve."""

import csv
import io
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ccfed
from ccfed.simulation.facts import facts_of
from ccfed.simulation.loop import Simulation
from ccfed.simulation.plots import curves
from ccfed.simulation.results import Run, Runs
from ccfed.simulation.running import RoundRecord, Running

COLUMNS = tuple(field.name for field in fields(RoundRecord))
DENSE_CELLS = 10**8


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
                (folder / "experiment.toml").write_text(running.experiment.settings.to_toml())
            np.savez_compressed(folder / "federation.npz", allow_pickle=False, **known)
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
            np.savez_compressed(folder / "participation.npz", allow_pickle=False, **participation(running))
            device = f"{simulation.device}"
            summary = summary_of(run, simulation.engine_name, device, running.finished)
            (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
            curves(Runs([run])).savefig(folder / "accuracy.png")


def summary_of(run: Run, engine: str, device: str, finished: bool) -> dict[str, Any]:
    """The contents of summary.json."""
    return {
        "method": run.name,
        "accuracy_last": run.accuracy_last,
        "accuracy_best": run.accuracy_best,
        "client_steps": run.total("client_steps"),
        "client_steps_full": run.client_steps_full,
        "compute_saved": run.compute_saved,
        "bytes_up": run.total("bytes_up"),
        "bytes_down": run.total("bytes_down"),
        "storage_client_bytes": run.storage_client_bytes,
        "storage_server_bytes": run.storage_server_bytes,
        "rounds": len(run.records),
        "finished": finished,
        "seconds": run.seconds,
        "engine": engine,
        "device": device,
        "seed": run.seed,
        "ccfed": ccfed.__version__,
    }


def participation(running: Running) -> dict[str, NDArray[Any]]:
    """`selected` and `trained`, bool [rounds, clients], and each client's bytes; for huge federations the client
    numbers of each round one after another (`selected_ids`, `trained_ids`) with where each round starts
    (`selected_starts`, ...)."""
    rounds, clients = len(running.took_part), running.experiment.federation.clients
    traffic = {"bytes_up": running.bytes_up.numpy(), "bytes_down": running.bytes_down.numpy()}
    chosen = [ids for ids, _ in running.took_part]
    trained = [ids[did] for ids, did in running.took_part]
    if rounds * clients <= DENSE_CELLS:
        return {"selected": _dense(chosen, clients), "trained": _dense(trained, clients), **traffic}
    return {
        "selected_ids": np.concatenate(chosen),
        "selected_starts": np.cumsum([0, *map(len, chosen)]),
        "trained_ids": np.concatenate(trained),
        "trained_starts": np.cumsum([0, *map(len, trained)]),
        **traffic,
    }


def _dense(ids: list[NDArray[Any]], clients: int) -> NDArray[np.bool_]:
    out = np.zeros((len(ids), clients), dtype=np.bool_)
    for row, these in zip(out, ids, strict=True):
        row[these] = True
    return out


def row_text(record: RoundRecord) -> str:
    """One line of rounds.csv."""
    values = asdict(record)
    values |= {name: f"{values[name]:.6g}" for name in ("accuracy", "loss", "seconds")}
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([values[name] for name in COLUMNS])
    return out.getvalue()


def write_rounds(path: Path, records: list[RoundRecord]) -> None:
    """Writes rounds.csv with these rows."""
    path.write_text(",".join(COLUMNS) + "\n" + "".join(map(row_text, records)))


def read_rounds(path: Path) -> list[RoundRecord]:
    """Reads rounds.csv."""
    kinds: dict[str, Any] = {field.name: field.type for field in fields(RoundRecord)}
    with path.open(newline="") as file:
        return [RoundRecord(**{name: kinds[name](row[name]) for name in COLUMNS}) for row in csv.DictReader(file)]


def holds_a_run(folder: Path) -> bool:
    """Whether `folder` has anything of a run in it."""
    return folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
