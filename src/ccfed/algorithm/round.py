"""One round of Algorithm 1, in the paper's order: the only place where the parts of a method meet.

`play` is a coroutine. It hands out the work of the round (`Assignment`) to whoever hosts it, a simulator or real
devices, and takes the moves back, so that a host can train the clients of many federations together.
"""

from collections.abc import Generator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ccfed.algorithm import costs
from ccfed.algorithm.estimators import Estimator, View
from ccfed.algorithm.history import History, kept_on_server
from ccfed.algorithm.methods import Method
from ccfed.algorithm.rows import Space
from ccfed.algorithm.schedules import Moment
from ccfed.algorithm.server import ServerState, mean

AT_ONCE_BYTES = 2**30
"""Estimates that take more memory than this enter the mean piece by piece (MIFA, which asks everyone)."""


class NotFinite(ArithmeticError):
    """A round came to a number that is NaN or infinite, which the message says where; it left its State as it was."""


@dataclass
class State:
    """All that a federation carries from round to round: t, x_t [parameters], the pasts, and the server's own state."""

    model: Tensor
    history: History
    server: ServerState = field(default_factory=dict)
    round: int = 0


@dataclass(frozen=True, eq=False)
class Assignment:
    """The work of a round: each of `clients` (int64 [C]) makes `steps` (int64 [C]) steps from `model` [parameters]."""

    round: int
    model: Tensor
    clients: Tensor
    steps: Tensor


@dataclass(frozen=True, eq=False)
class Outcome:
    """Who did what in a round: the `selected` clients (int64 [S]), who of them trained and who was estimated (bool
    [S]), the steps made by each (int64 [S]) and each one's traffic."""

    round: int
    selected: Tensor
    trained: Tensor
    estimated: Tensor
    steps: Tensor
    traffic: costs.Traffic


def start(
    method: Method,
    model: Tensor,
    clients: int,
    space: Space | None = None,
    store_dtype: torch.dtype | None = None,
) -> State:
    """The state before round 0, for `clients` clients and the first global model x_0 [parameters]."""
    rule = method.estimator
    on_server = kept_on_server(method.keep, clients, method.on_server)
    history = History(on_server, model, rule.state_size, rule.keeps, store_dtype, space, rule.uses_trained_from)
    return State(model, history)


def play(
    state: State,
    method: Method,
    selected: Tensor,
    *,
    steps: int,
    rounds: int,
    seed: int = 0,
    weights: Tensor | None = None,
) -> Generator[Assignment, Tensor, Outcome]:
    """Plays round t on `state`: yields the Assignment, is sent the moves [C, parameters], and moves `state` on to t +
    1.

    `selected` is S_t (int64 [S], ascending), `steps` K, `rounds` T, `weights` one number for each client of the
    federation (float64 [clients]) or None for equal ones.
    """
    t, x, history, rule = state.round, state.model, state.history, method.estimator
    p = method.budget(selected)

    # Each selected client trains if its schedule says so, or if it has no past that it could repeat.
    trains = method.schedule.decide(Moment(t, rounds, selected, p, seed))
    _check_decision(method.schedule.name, trains, len(selected))
    if rule.needs_past:
        trains = trains | ~history.knows(selected)
    trained = selected[trains]
    own_steps = torch.where(trains, method.work(p, steps), 0)

    # Those make K steps of SGD from x_t: Δ_i = x_K - x_t. (A host with nobody to train returns no moves.)
    moves = yield Assignment(t, x, trained, own_steps[trains])

    # The others estimate theirs, by default Δ_i as it was.
    skips = selected[~trains]
    if method.speaks_for == "everyone":
        everyone = history.owners()
        skips = everyone[~torch.isin(everyone, trained)]
    view = View(t, rounds, x, skips, trained, moves, history)
    estimates = move = None
    if len(skips) * x.nbytes > AT_ONCE_BYTES and method.server.combine is mean:
        move = _mean_in_pieces(rule, view, weights)
    elif len(skips):
        estimates = rule.estimate(view)
    estimated = ~trains & (estimates is not None or move is not None)
    notes = None
    if rule.note is not None and len(trained):
        notes = rule.note(View(t, rounds, x, trained, trained, moves, history))
        _check_shape(f"estimator {rule.name!r} noted numbers", notes, len(trained), "trained clients", rule.state_size)

    # x_{t+1} = x_t + mean of Δ_i, summed in the order of the clients, whoever trained or not.
    speakers, spoken = trained, moves
    if estimates is not None:
        _check_shape(f"estimator {rule.name!r} returned moves", estimates, len(skips), "skippers", len(x))
        speakers, spoken = _in_order(torch.cat([trained, skips]), torch.cat([moves, estimates.to(moves.dtype)]))
    if move is None and len(speakers):
        shares = None if weights is None else weights[speakers]
        move = method.server.combine(spoken, shares, method.work(method.budget(speakers), steps))
    model, server = x, state.server
    if move is not None:
        model, server = method.server.advance(x, move, state.server)
        if not bool(torch.isfinite(model.sum())):
            raise NotFinite(_culprit(method, speakers, spoken, trained))

    # Only a round that came to something sound changes the state.
    if rule.keeps:
        history.remember(t, x, trained, moves, notes)
    state.model, state.server, state.round = model, server, t + 1

    model_bytes = len(x) * x.element_size()
    traffic = costs.traffic(
        model_bytes, trains, trains | estimated, history.on_server[selected], method.schedule.foreseeable
    )
    return Outcome(t, selected, trains, estimated, own_steps, traffic)


def _mean_in_pieces(rule: Estimator, view: View, weights: Tensor | None) -> Tensor | None:
    """The mean over the trained and over estimates for `view.clients` that are too many to be held at once:
    [parameters]; None if the estimator keeps silent."""
    x, total, whole = view.model, torch.zeros_like(view.model, dtype=torch.float64), 0.0

    def add(clients: Tensor, moves: Tensor) -> None:
        nonlocal total, whole
        share = torch.ones(len(clients), dtype=torch.float64) if weights is None else weights[clients]
        total = total + share.to(moves.device, moves.dtype) @ moves
        whole += float(share.sum())

    if len(view.trained_clients):
        add(view.trained_clients, view.trained_moves)
    for clients in view.clients.split(max(1, AT_ONCE_BYTES // x.nbytes)):
        estimates = rule.estimate(replace(view, clients=clients))
        if estimates is None:
            return None
        _check_shape(f"estimator {rule.name!r} returned moves", estimates, len(clients), "skippers", len(x))
        add(clients, estimates.to(x.dtype))
    return (total / whole).to(x.dtype)


def _in_order(clients: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
    order = clients.argsort()
    return clients[order], moves[order.to(moves.device)]


def _check_decision(name: str, trains: object, selected: int) -> None:
    # Numbers in place of yes and no would be taken for the places of clients, and nobody would notice.
    if not isinstance(trains, Tensor) or trains.dtype != torch.bool or trains.shape != (selected,):
        got = f"{trains.dtype} of shape {tuple(trains.shape)}" if isinstance(trains, Tensor) else type(trains).__name__
        raise ValueError(f"schedule {name!r} returned {got}, but {selected} selected clients need bool ({selected},)")


def _check_shape(what: str, numbers: object, clients: int, whose: str, each: int) -> None:
    if not isinstance(numbers, Tensor) or numbers.shape != (clients, each):
        got = f"of shape {tuple(numbers.shape)}" if isinstance(numbers, Tensor) else f"as {type(numbers).__name__}"
        raise ValueError(
            f"{what} {got}, but {clients} {whose} with {each} each need a tensor of shape ({clients}, {each})"
        )


def _culprit(method: Method, speakers: Tensor, spoken: Tensor, trained: Tensor) -> str:
    """What made the next global model not finite, in a sentence."""
    bad = speakers[~torch.isfinite(spoken.sum(1)).cpu()]
    if len(bad) == 0:
        return f"the global model that server {method.server.name!r} makes of the moves is not finite"
    client = int(bad[0])
    if bool((trained == client).any()):
        return f"the move of client {client} is not finite"
    return f"the move that estimator {method.estimator.name!r} gives for client {client} is not finite"
