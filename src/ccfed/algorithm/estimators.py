"""What a client that skips its training contributes to the round.

An estimator is a function from a View of the skippers to their moves, [skippers, parameters]; or None for silence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from ccfed.algorithm.history import History


@dataclass(frozen=True)
class View:
    """What an estimator sees in round t: the model, the past of each of `clients`, and what the others did just now.

    `model` is x_t [parameters]; `clients` int64 [C]; `trained_moves` [trained, parameters] and `trained_clients` are
    the moves made in this round. The past is read when asked for: `last_move`, `trained_from`, `last_model`, `age`,
    `state`.
    """

    round: int
    rounds: int
    model: Tensor
    clients: Tensor
    trained_clients: Tensor
    trained_moves: Tensor
    history: History

    @cached_property
    def last_move(self) -> Tensor:
        """The move of each client's last real training, [C, parameters]."""
        return self.history.last_moves(self.clients)

    @cached_property
    def trained_from(self) -> Tensor:
        """The global model x_{t_i} that each client last trained from, [C, parameters]."""
        return self.history.trained_from(self.clients)

    @cached_property
    def last_model(self) -> Tensor:
        """The local model that came out of each client's last training, [C, parameters]."""
        return self.trained_from + self.last_move

    @cached_property
    def age(self) -> Tensor:
        """The rounds that passed since each client last trained, int64 [C]: at least 1 for a skipper."""
        return self.round - self.history.last_rounds(self.clients)

    @cached_property
    def state(self) -> Tensor:
        """What the estimator noted about each client when it last trained, [C, state_size] (zeros before)."""
        return self.history.states(self.clients)


@dataclass(frozen=True)
class Estimator:
    """An estimator with its needs.

    `estimate(view)` gives the skippers' moves. `needs_past`: a client that has never trained must train. `keeps`: the
    number of vectors of model size that a client's past takes. `note(view)`, if given, is called for the clients that
    have just trained, with their past as it was before and their new moves as `view.trained_moves` (in the same
    order), and returns [trained, `state_size`] numbers to keep for later. `uses_trained_from=False` promises that
    neither looks at `trained_from` or `last_model`, so that no old global models are kept.
    """

    name: str
    estimate: Callable[[View], Tensor | None]
    needs_past: bool = True
    keeps: int = 1
    note: Callable[[View], Tensor] | None = None
    state_size: int = 0
    uses_trained_from: bool = True

    def __post_init__(self) -> None:
        if self.note is not None and self.state_size < 1:
            raise ValueError(
                f"estimator {self.name!r} has a note and the state_size {self.state_size}, but that must be how many "
                "numbers it notes for each client"
            )


def as_estimator(rule: Estimator | Callable[[View], Tensor | None]) -> Estimator:
    """Wraps a plain function `view -> moves`; an Estimator stays as it is."""
    if isinstance(rule, Estimator):
        return rule
    if not callable(rule):
        raise ValueError(f"estimator is {rule!r}, but it must be an Estimator or a function of a View")
    return Estimator(getattr(rule, "__name__", type(rule).__name__), rule)


def nothing() -> Estimator:
    """A skipper stays silent: the mean is over those who trained."""
    return Estimator("nothing", lambda view: None, needs_past=False, keeps=0, uses_trained_from=False)


def last_move() -> Estimator:
    """A skipper repeats the move of its last training: CC-FedAvg."""
    return Estimator("last move", lambda view: view.last_move, uses_trained_from=False)


def last_model() -> Estimator:
    """A skipper returns the model of its last training, so that its move is x_last - x_t: Strategy 2."""
    return Estimator("last model", lambda view: view.last_model - view.model)


def last_move_then_last_model(tau: int) -> Estimator:
    """The last move while t < tau, the last model from then on: CC-FedAvg(c)."""

    def estimate(view: View) -> Tensor:
        return view.last_move if view.round < tau else view.last_model - view.model

    return Estimator(f"last move, from round {tau} last model", estimate, keeps=2)


def between(weight: float) -> Estimator:
    """The family last move - weight * (x_t - x_{t_i}): weight 0 is CC-FedAvg, weight 1 is Strategy 2."""

    def estimate(view: View) -> Tensor:
        return view.last_move - weight * (view.model - view.trained_from)

    return Estimator(f"between {weight:g}", estimate, keeps=2)
