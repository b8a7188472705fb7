"""The paper in code: budgets, schedules, estimators, histories, servers, and the round in which they meet."""

from ccfed.algorithm import budgets, costs, estimators, methods, schedules, server, streams
from ccfed.algorithm.estimators import Estimator, View
from ccfed.algorithm.history import History
from ccfed.algorithm.methods import Method
from ccfed.algorithm.round import Assignment, NotFinite, Outcome, State, play, start
from ccfed.algorithm.rows import Space
from ccfed.algorithm.schedules import Moment, Schedule
from ccfed.algorithm.selection import select
from ccfed.algorithm.server import Server

__all__ = [
    "Assignment",
    "Estimator",
    "History",
    "Method",
    "Moment",
    "NotFinite",
    "Outcome",
    "Schedule",
    "Server",
    "Space",
    "State",
    "View",
    "budgets",
    "costs",
    "estimators",
    "methods",
    "play",
    "schedules",
    "select",
    "server",
    "start",
    "streams",
]
