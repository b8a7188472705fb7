"""Many federations at once: settings, the loop over rounds, results, run folders and those who watch."""

from ccfed.simulation.experiment import Experiment, experiments_of, federation_of
from ccfed.simulation.loop import Diverged, Observer, Simulation, TrainingFailed
from ccfed.simulation.results import Run, Runs, Seeds, Table
from ccfed.simulation.running import RoundRecord, Running
from ccfed.simulation.settings import Settings
from ccfed.simulation.simulate import run, simulate

__all__ = [
    "Diverged",
    "Experiment",
    "Observer",
    "RoundRecord",
    "Run",
    "Running",
    "Runs",
    "Seeds",
    "Settings",
    "Simulation",
    "Table",
    "TrainingFailed",
    "experiments_of",
    "federation_of",
    "run",
    "simulate",
]
