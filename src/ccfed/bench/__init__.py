"""How fast this machine trains: whole rounds by every engine and by a plain loop, measured side by side."""

from ccfed.bench.machine import machine
from ccfed.bench.measure import Pace, Saving, compare_engines, compare_methods
from ccfed.bench.plain import plain_rounds
from ccfed.bench.works import WORKS, Work, made_up, works_for

__all__ = [
    "WORKS",
    "Pace",
    "Saving",
    "Work",
    "compare_engines",
    "compare_methods",
    "machine",
    "made_up",
    "plain_rounds",
    "works_for",
]
