"""What server and device tell each other beside Flower's arrays: one ConfigRecord a message."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from flwr.app import ConfigRecord, RecordDict

KEY = "ccfed"
"""The name of the record in every message."""

BEFORE = "ccfed-before"
"""The name of the arrays with the move that a client had before the one that it sends."""


@dataclass(frozen=True)
class Note:
    """Numbers, words and flags that travel as a ConfigRecord."""

    def record(self) -> ConfigRecord:
        """The note as Flower carries it."""
        return ConfigRecord(asdict(self))

    @classmethod
    def read(cls, content: RecordDict) -> Self | None:
        """The note in a message's content; None if there is none. ValueError if it is not whole."""
        record = content.config_records.get(KEY)
        if record is None:
            return None
        values: dict[str, Any] = {}
        for field in fields(cls):
            value = record.get(field.name)
            if type(value) is not field.type:
                raise ValueError(
                    f"the record {KEY!r} has {value!r} as {field.name}: do both sides have the same ccfed?"
                )
            values[field.name] = value
        return cls(**values)


@dataclass(frozen=True)
class Ask(Note):
    """The server's part. `kind` is "who" (tell me which client you are) or "round"; the rest concerns rounds.

    `run` names the run, `client` whom the message is for; `plan` says whether the client trains: "train", "skip", or
    "ask" (it decides itself). `keeps` says who keeps its move: "client", "server" or "nobody". `known` is the round in
    which the server believes that it last trained (-1: never); with `newer` a later one serves as well. `trainings`
    counts its trainings so far, `steps` the local steps that it should make, `p` is its budget. `needs_past` says
    that a client without a past must train; `before`, that a client that trains sends the move that it had before, too;
    `arrays` names the record with the model.
    """

    kind: str
    run: str
    round: int
    rounds: int
    seed: int
    client: int = -1
    plan: str = "ask"
    keeps: str = "client"
    known: int = -1
    newer: bool = False
    needs_past: bool = True
    before: bool = False
    trainings: int = 0
    steps: int = 1
    p: float = 1.0
    arrays: str = "arrays"


Did = Literal["told", "trained", "skipped"]


@dataclass(frozen=True)
class Answer(Note):
    """The device's part: what it `did` ("told" who it is, "trained" or "skipped") and for which client of which run.

    `since` is the round in which the move that it sends was made. `repeated` says that it had trained for this round
    before, and sends the same move again. `seconds` is how long its training took. `why` is a warning, or empty.
    `p` (0: as the server says), `trainings` (how many it can afford; 0: not told) and `schedule` ("": as the server
    says; "own": nobody can foresee it) are what its owner decided.
    """

    run: str
    round: int
    client: int
    did: str
    since: int = -1
    repeated: bool = False
    seconds: float = 0.0
    why: str = ""
    p: float = 0.0
    trainings: float = 0.0
    schedule: str = ""


def content_bytes(content: RecordDict) -> int:
    """The bytes of a message's content: its arrays as Flower serialises them, and the records beside them. What Flower
    adds to address, seal and transport a message is not in this."""
    arrays = sum(len(array.data) for record in content.array_records.values() for array in record.values())
    beside = [*content.config_records.values(), *content.metric_records.values()]
    return arrays + sum(len(record.deflate()) for record in beside)
