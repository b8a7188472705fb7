"""Federated learning in which every device pays only the compute it can afford."""

import os

# Threads that share a product spin while they wait for each other. If another program needs the processor too, that can
# stop both: sleep soon instead. It has to be said before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

from ccfed import data
from ccfed.algorithm import Estimator, Method, Moment, Schedule, View, budgets, estimators, methods, schedules, server
from ccfed.simulation import Runs, simulate

__version__ = "0.1.0"

__all__ = [
    "Estimator",
    "Method",
    "Moment",
    "Runs",
    "Schedule",
    "View",
    "__version__",
    "budgets",
    "data",
    "estimators",
    "methods",
    "schedules",
    "server",
    "simulate",
]
