"""Which client is behind which of Flower's nodes: nodes come and go and change their ids, clients do not."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING

from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore import log
from google.protobuf.message import DecodeError

from ccfed.flower.wire import KEY, Answer, Ask

ASK_AGAIN_SECONDS = 300.0  # a device may be slow to start an app for the first time
MOD = "mods=[ccfed.flower.customize()]"
LASTING = (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.LOAD_CLIENT_APP_EXCEPTION, ErrorCode.INVALID_FAB)
"""Errors that a node would answer with again: it is not asked any more until it is started anew."""


UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, DecodeError)
"""What Flower raises when the bytes of an answer are no message."""


def pull(grid: Grid, ids: Sequence[str], one_by_one: bool = False) -> tuple[list[Message], bool]:
    """The answers to the messages `ids` that are there, and whether one of them cannot be read.

    That one is lost, and so are all that come with it, unless they are pulled `one_by_one`: at the next call Flower
    tells of each of them that it is not available.
    """
    heard: list[Message] = []
    spoilt = False
    for together in [[id] for id in ids] if one_by_one else [ids]:
        try:
            heard += grid.pull_messages(together)
        except UNREADABLE as error:
            spoilt = True
            log(WARNING, "an answer cannot be read: %s", error or type(error).__name__)
    return heard, spoilt


@dataclass(frozen=True)
class Place:
    """Where a client is: a node's id, and since when that node is active (a restart may keep the id)."""

    node: int
    since: str


class Devices:
    """Asks every new node which client it is, and remembers. `on_told(answer)` hears each introduction."""

    def __init__(self, grid: Grid, question: Ask, clients: int, on_told: Callable[[Answer], None]) -> None:
        self._grid, self._question, self._clients, self._on_told = grid, question, clients, on_told
        self._open: dict[str, tuple[Place, float]] = {}  # message id -> whom it asks, until when
        self._client_at: dict[Place, int] = {}
        self._place_of: dict[int, Place] = {}
        self._here: set[Place] = set()
        self._one_by_one = False  # somebody's answer could not be read
        self._began = time.monotonic()
        self._left: dict[int, float] = {}  # client -> since when it is missed
        self.refused: dict[Place, str] = {}

    @property
    def connected(self) -> list[int]:
        """The clients that can be reached, ascending."""
        return sorted(client for client, place in self._place_of.items() if place in self._here)

    @property
    def asking(self) -> bool:
        """Whether somebody has yet to say who it is."""
        return bool(self._open)

    @property
    def asked_last(self) -> float:
        """When (`time.monotonic`) the last of those here who have not answered was asked; else minus infinity."""
        asked = [until - ASK_AGAIN_SECONDS for place, until in self._open.values() if place in self._here]
        return max(asked, default=-math.inf)

    def place_of(self, client: int) -> Place | None:
        """Where a client is; None while it is not connected."""
        place = self._place_of.get(client)
        return place if place in self._here else None

    def missed_since(self, client: int) -> float:
        """Since when (`time.monotonic`) a client that is not connected has been missed."""
        return self._left.get(client, self._began)

    def look(self) -> None:
        """Sees which nodes are there, asks the new ones who they are, and hears those who answer."""
        self._here = {Place(node.node_id, node.last_activated_at) for node in self._grid.get_nodes()}
        now = time.monotonic()
        for client, place in self._place_of.items():
            if place in self._here:
                self._left.pop(client, None)
            else:
                self._left.setdefault(client, now)
        self._open = {id: (place, until) for id, (place, until) in self._open.items() if until > now}
        waiting = {place for place, _ in self._open.values()}
        new = [
            place for place in self._here if not (place in self._client_at or place in self.refused or place in waiting)
        ]
        for place in sorted(new, key=lambda place: (place.since, place.node)):
            # An empty model stands for the arrays, so that a training function without our mod fails at once.
            content = RecordDict({KEY: self._question.record(), self._question.arrays: ArrayRecord()})
            message = Message(content, place.node, MessageType.TRAIN, ttl=ASK_AGAIN_SECONDS)
            ids = list(self._grid.push_messages([message]))
            if ids and ids[0]:
                self._open[ids[0]] = (place, now + ASK_AGAIN_SECONDS)
        if self._open:
            heard, spoilt = pull(self._grid, list(self._open), self._one_by_one)
            self._one_by_one = self._one_by_one or spoilt
            for reply in heard:
                asked = self._open.pop(reply.metadata.reply_to_message_id, None)
                if asked is not None:
                    self._hear(asked[0], reply)

    def _hear(self, place: Place, reply: Message) -> None:
        if reply.has_error():
            reason = reply.error.reason or f"error {reply.error.code}"
            if reply.error.code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION:
                reason += f" (so may end a training function that has no {MOD})"
            log(WARNING, "node %d cannot say which client it is: %s", place.node, reason)
            if reply.error.code in LASTING:
                self.refused[place] = reason
            return
        try:
            told = Answer.read(reply.content)
            if told is None or told.did != "told":
                raise ValueError(f"its training function has no {MOD}")
            if not 0 <= told.client < self._clients:
                raise ValueError(
                    f"it says that it is client {told.client}, but there are clients 0 to {self._clients - 1}"
                )
            self._settle(told, place)
        except ValueError as error:
            self.refused[place] = str(error)
            log(WARNING, "node %d is left out: %s", place.node, error)

    def _settle(self, told: Answer, place: Place) -> None:
        """Notes where a client is; of two nodes that say they are the same client, the one started last counts."""
        before = self._place_of.get(told.client)
        older = before is not None and before in self._here and before.since > place.since
        if not older:
            self._on_told(told)
            self._place_of[told.client] = place
            self._left.pop(told.client, None)
            log(INFO, "client %d is at node %d", told.client, place.node)
        self._client_at[place] = told.client
        if before in self._here and before is not None and before.node != place.node:
            new, old = (before, place) if older else (place, before)
            text = "client %d is at node %d and was at node %d: without a restart, two devices have the same number"
            log(WARNING, text, told.client, new.node, old.node)
