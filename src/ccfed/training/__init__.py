"""K steps of SGD for many clients: where they start, who they are and how many steps in; moves out."""

from ccfed.training.choose import choose
from ccfed.training.engine import Engine, JobFailed, Jobs, Precision, Task, Trained
from ccfed.training.one_by_one import OneByOne
from ccfed.training.together import Together

__all__ = ["Engine", "JobFailed", "Jobs", "OneByOne", "Precision", "Task", "Together", "Trained", "choose"]
