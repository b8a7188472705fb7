"""K steps of SGD for many clients: where they start, who they are and how many steps in; moves out."""

from ccfed.training.batches import BatchPlan, plan
from ccfed.training.engine import Engine, Jobs, Task, Trained
from ccfed.training.one_by_one import OneByOne

__all__ = ["BatchPlan", "Engine", "Jobs", "OneByOne", "Task", "Trained", "plan"]
