"""One message to each of some clients and one answer back, across restarts of their nodes."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING

from flwr.app import Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.supercore import log

from ccfed.flower.devices import Devices, Place, pull

ASK_AGAIN = (ErrorCode.CLIENT_APP_CRASHED, ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE)
"""Errors after which the same node may well answer if it is asked once more. An exception in the app is none of them:
it would be raised again, at the cost of another training."""

FIRST_PAUSE, LONGEST_PAUSE, LOOK_EVERY = 0.02, 1.0, 1.0


@dataclass(frozen=True)
class Patience:
    """How long to wait: `answers` seconds for a client's answer (`CCFedAvg.start` takes its `timeout` for it), `absent`
    seconds for a client that is not connected, from the moment at which that is known, however many rounds ago; and how
    `often` a client is asked the same at most."""

    answers: float = 3600.0
    absent: float = 60.0
    often: int = 3


@dataclass(frozen=True)
class Exchanged:
    """What came of an exchange, by client in ascending order: the `replies`, the `failures` with their reasons, and how
    many `times` each was asked."""

    replies: dict[int, Message]
    failures: dict[int, str]
    times: dict[int, int]


@dataclass
class _Client:
    """Where a client was asked last, how often, its last error, and when that said that its node is `gone`
    (`time.monotonic`)."""

    asked_at: Place | None = None
    gone: float = -math.inf
    times: int = 0
    trouble: str = "it is not connected"
    failed: bool = False
    open: set[str] = field(default_factory=set)


def exchange(
    grid: Grid,
    devices: Devices,
    contents: Mapping[int, RecordDict],
    message_type: str,
    patience: Patience,
    group: str = "",
) -> Exchanged:
    """Sends `contents` (by client) and waits.

    A client whose node is gone, or came back under another id, is sent its message again when it is there.
    """
    clients = {client: _Client() for client in sorted(contents)}
    replies: dict[int, Message] = {}
    began = time.monotonic()
    pause, looked, one_by_one = FIRST_PAUSE, -math.inf, False
    while left := [client for client in clients if client not in replies and not clients[client].failed]:
        now = time.monotonic()
        if now - began >= patience.answers:
            break
        if now - looked >= LOOK_EVERY:
            devices.look()
            looked = now
        _send(grid, devices, {client: clients[client] for client in left}, contents, message_type, patience, group)
        whose = {id: client for client in left for id in clients[client].open}
        if not whose:
            # Those who have not said who they are may be the ones that are missed.
            since = [max(clients[client].gone, devices.missed_since(client)) for client in left]
            if now - max(*since, devices.asked_last) >= patience.absent:
                break
        heard, spoilt = pull(grid, list(whose), one_by_one) if whose else ([], False)
        one_by_one = one_by_one or spoilt
        for reply in heard:
            client = whose.get(reply.metadata.reply_to_message_id)
            if client is None or client in replies:
                continue
            state = clients[client]
            state.open.discard(reply.metadata.reply_to_message_id)
            if not reply.has_error():
                replies[client] = reply
                continue
            state.trouble = reply.error.reason or f"error {reply.error.code}"
            if reply.error.code == ErrorCode.NODE_UNAVAILABLE:
                # It may have come back already; where it is not, nothing is sent.
                state.asked_at, state.gone, looked = None, now, -math.inf
            elif reply.error.code in ASK_AGAIN and state.times < patience.often:
                log(INFO, "client %d is asked again: %s", client, state.trouble)
                state.asked_at = None
            else:
                state.failed = True
        pause = FIRST_PAUSE if heard else min(LONGEST_PAUSE, pause * 1.5)
        if len(replies) < len(clients):
            time.sleep(pause)
    silent = {client: state for client, state in clients.items() if client not in replies}
    for client, state in silent.items():
        if state.open:
            state.trouble = f"no answer within {time.monotonic() - began:.0f} seconds"
        log(WARNING, "client %d did not answer: %s", client, state.trouble)
    ordered = {client: replies[client] for client in sorted(replies)}
    failures = {client: state.trouble for client, state in silent.items()}
    return Exchanged(ordered, failures, {client: state.times for client, state in clients.items()})


def _send(
    grid: Grid,
    devices: Devices,
    clients: Mapping[int, _Client],
    contents: Mapping[int, RecordDict],
    message_type: str,
    patience: Patience,
    group: str,
) -> None:
    """Sends to those who are connected and were not asked where they are now."""
    batch: list[tuple[_Client, Place, Message]] = []
    for client, state in clients.items():
        place = devices.place_of(client)
        if place is None or place == state.asked_at or state.times >= patience.often:
            continue
        # What a device did not fetch in time it must not train for later: the message expires with our patience.
        message = Message(contents[client], place.node, message_type, ttl=patience.answers, group_id=group)
        batch.append((state, place, message))
    if not batch:
        return
    ids = list(grid.push_messages([message for _, _, message in batch]))
    for i, (state, place, message) in enumerate(batch):
        id = message.metadata.message_id or (ids[i] if len(ids) == len(batch) else "")
        state.asked_at, state.times = place, state.times + 1
        if id:
            state.open.add(id)
