"""Federated learning in which every device pays only the compute it can afford."""

import importlib
import os
from typing import TYPE_CHECKING

# Threads that share a product spin while they wait for each other. If another program needs the processor too, that can
# stop both: sleep soon instead. It has to be said before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "3000")

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

if TYPE_CHECKING:
    from ccfed import data
    from ccfed.algorithm import (
        Estimator,
        Method,
        Moment,
        Schedule,
        View,
        budgets,
        estimators,
        methods,
        schedules,
        server,
    )
    from ccfed.simulation.results import Runs
    from ccfed.simulation.simulate import simulate
else:

    def __getattr__(name: str) -> object:
        """Loads what is asked for, and torch with it: so the command line answers at once, also to Ctrl-C."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "data":
            return importlib.import_module("ccfed.data")
        room = "ccfed.simulation" if name in ("Runs", "simulate") else "ccfed.algorithm"
        return getattr(importlib.import_module(room), name)

    def __dir__() -> list[str]:
        return __all__
