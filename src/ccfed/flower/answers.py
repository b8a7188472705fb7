"""What a device answered, checked before it may enter the mean."""

from dataclasses import dataclass

from flwr.app import Message, RecordDict
from torch import Tensor

from ccfed.flower.arrays import Layout, Refused, is_sound
from ccfed.flower.wire import BEFORE, KEY, Answer, Ask

HEAVIEST = 1e100
"""The limit for a client's weight: nobody has so many samples, and such numbers can still be added up."""


@dataclass(frozen=True, eq=False)
class Taken:
    """An answer that is in order: it `trained` or skipped, its `move` [parameters] if it sent one, made in round
    `since`; the move that it had `before`, if that was asked for and is not lost; its `weight` in the mean, `seconds`
    of training on the device, whether it `repeated` an earlier answer, a warning `why` or nothing, and the `content` as
    it came."""

    trained: bool
    move: Tensor | None
    before: Tensor | None
    since: int
    weight: float | None
    seconds: float
    repeated: bool
    why: str
    content: RecordDict


def read(reply: Message, ask: Ask, layout: Layout, weighted_by: str | None) -> Taken:
    """The answer to `ask`; `Refused` with the reason if it cannot be used."""
    content = reply.content
    try:
        answer = Answer.read(content)
    except ValueError as error:
        raise Refused(str(error)) from error
    if answer is None:
        raise Refused(f"it has no record {KEY!r}: is mods=[ccfed.flower.customize()] given to the training function?")
    if answer.run != ask.run or answer.client != ask.client:
        raise Refused(f"it is of client {answer.client} in run {answer.run!r}")
    if answer.round != ask.round:
        raise Refused(f"it is for round {answer.round}, which is {'past' if answer.round < ask.round else 'to come'}")
    if answer.did not in ("trained", "skipped") or (answer.did == "skipped" and ask.plan == "train"):
        raise Refused(f"it says {answer.did!r}, but the client was to {ask.plan}")
    trained = answer.did == "trained"
    move = before = None
    if trained or (ask.keeps == "client" and content.array_records):
        move = _move(content, ask.arrays, layout)
        if answer.since != ask.round if trained else not _may_be_since(answer.since, ask):
            raise Refused(f"its move is of round {answer.since}, but the one of round {ask.known} was asked for")
    elif ask.keeps == "client" and ask.needs_past:
        raise Refused("it skipped without sending its last move")
    if trained and ask.before and BEFORE in content.array_records:
        before = _move(content, BEFORE, layout)
    weight = _weight(content, weighted_by) if trained and weighted_by is not None else None
    return Taken(trained, move, before, answer.since, weight, answer.seconds, answer.repeated, answer.why, content)


def _may_be_since(since: int, ask: Ask) -> bool:
    return since == ask.known or (ask.newer and ask.known < since < ask.round)


def _move(content: RecordDict, name: str, layout: Layout) -> Tensor:
    arrays = content.array_records.get(name)
    if arrays is None:
        raise Refused(f"it has no arrays {name!r}")
    strangers = [each for each in arrays if each not in layout.names]
    if strangers:
        raise Refused(f"array {strangers[0]!r} is not one of the model's")
    move = layout.flat(arrays)
    if not is_sound(move):
        raise Refused("its move has numbers that are not finite, or too large to be added up")
    return move


def _weight(content: RecordDict, key: str) -> float:
    found = [record[key] for record in content.metric_records.values() if key in record]
    if len(found) != 1 or not isinstance(found[0], int | float) or not 0 < found[0] < HEAVIEST:
        allowed = f"one number {key!r} above 0 and below {HEAVIEST:g} as its weight"
        raise Refused(f"its metrics need {allowed}, but have {found or 'none'}")
    return float(found[0])
