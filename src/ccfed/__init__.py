"""Federated learning in which every device pays only the compute it can afford."""

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
