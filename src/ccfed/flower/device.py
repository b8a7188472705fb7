"""The device's side: a mod that lets an unchanged training function run only when the device can afford it.

app = ClientApp()

@app.train(mods=[ccfed.flower.customize()])
def train(message, context): ...
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.supercore import log
from torch import Tensor

from ccfed.algorithm import schedules
from ccfed.algorithm.schedules import Moment, Schedule
from ccfed.flower import past as pasts
from ccfed.flower.arrays import Layout, checksum, is_sound
from ccfed.flower.past import Past
from ccfed.flower.wire import BEFORE, KEY, Answer, Ask, Did

FOLDER = Path("~/.ccfed/devices")
LOAD_SECONDS = 0.3
CLIENT_KEYS = ("ccfed-client", "partition-id")


@dataclass(frozen=True)
class Owner:
    """What the owner of a device decided: `schedule` (None: as the server says), its name if the server can foresee it
    (else "own"), `p` and `trainings` (0: as the server says) and the `folder` for the device's past."""

    schedule: Schedule | None
    name: str
    p: float
    trainings: float
    folder: Path


def customize(
    schedule: str | Schedule | None = None,
    *,
    p: float | None = None,
    trainings: float | None = None,
    can_train: Callable[[int, int], bool] | None = None,
    folder: str | Path | None = None,
    client: Callable[[Context], int] | None = None,
) -> Mod:
    """A mod for a ClientApp's training function, which stays as it is: `@app.train(mods=[customize()])`.

    By default the device does as the server's method says. Its owner may decide otherwise: by a `schedule` (a name such
    as "round-robin", or a Schedule), by its own budget `p`, by an energy plan (`trainings`: how many rounds of
    training it can afford in the whole run, spread evenly), or at the moment (`can_train(client, round)`, or
    `schedule="live"`, which looks at battery and CPU load). The SuperNode's node config wins over all of these with
    `ccfed-schedule`, `ccfed-p`, `ccfed-trainings` and `ccfed-folder`. The device's last move lies in `folder` (default:
    $CCFED_DEVICES, else ~/.ccfed/devices). Who it is says `client(context)`, by default `ccfed-client` or
    `partition-id` in the node config.

    Messages of other strategies than `ccfed.flower.CCFedAvg` go through untouched.
    """
    if can_train is not None:
        if schedule is not None:
            raise ValueError("customize has both schedule and can_train, but only one of them can decide")
        schedule = schedules.live(can_train)
    owner_of_all = _owner(schedule, p, trainings, folder, {})  # raises now, not on the device

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        ask = Ask.read(message.content) if message.has_content() else None
        if ask is None:
            return call_next(message, context)
        own = context.node_config
        owner = _owner(schedule, p, trainings, folder, own) if own else owner_of_all
        who = _client(context) if client is None else client(context)
        if ask.kind == "who":
            told = Answer(ask.run, ask.round, who, "told", p=owner.p, trainings=owner.trainings, schedule=owner.name)
            return Message(RecordDict({KEY: told.record()}), reply_to=message)
        if ask.client != who:
            raise ValueError(f"a message for client {ask.client} came to client {who}: node configs were changed?")
        return _round(ask, owner, message, context, call_next)

    return mod


def _round(ask: Ask, owner: Owner, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Trains or skips, and answers."""
    arrays = message.content.array_records.get(ask.arrays)
    past, trouble = pasts.read(owner.folder, ask.client, ask.run) if ask.keeps == "client" else (None, "")
    if past is not None and arrays is not None and past.round == ask.round and past.model == checksum(arrays):
        # It has trained for this round: the answer was lost, or the server starts again from before it.
        metrics = {name: MetricRecord(values) for name, values in past.metrics.items()}
        again = _answer(ask, "trained", since=ask.round, repeated=True)
        before = past.before if past.round_before == ask.known else {}
        return _reply(message, ask, again, past.move, metrics, before)

    trains = ask.plan == "train" or (ask.plan == "ask" and _decides(owner, ask))
    why = "" if trains or not ask.needs_past else _lacks_past(ask, past, trouble)
    if not trains and not why:
        if past is None:
            return _reply(message, ask, _answer(ask, "skipped", since=ask.known))
        return _reply(message, ask, _answer(ask, "skipped", since=past.round), past.move)
    if why and ask.known >= 0:
        log(WARNING, "client %d trains in round %d although it should skip: %s", ask.client, ask.round, why)
    if arrays is None:
        raise ValueError(f"client {ask.client} must train in round {ask.round}, but was sent no arrays {ask.arrays!r}")
    if ask.before and ask.known >= 0:
        why = why or _lacks_past(ask, past, trouble)
    former = past if ask.before and past is not None and past.round == ask.known else None
    return _train(ask, owner, message, context, call_next, arrays, former, why if ask.known >= 0 else "")


def _lacks_past(ask: Ask, past: Past | None, trouble: str) -> str:
    """Why there is no move that a skip could repeat; empty if there is one."""
    if ask.keeps == "server":
        return "" if ask.known >= 0 else "the server has no past of it"
    if past is None:
        return trouble
    if past.round == ask.known or (ask.newer and ask.known < past.round < ask.round):
        return ""
    return f"its last move is of round {past.round}, but the server knows of one of round {ask.known}"


def _train(
    ask: Ask,
    owner: Owner,
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    arrays: ArrayRecord,
    former: Past | None,
    why: str,
) -> Message:
    """Calls the user's function, and turns the model that it returns into a move; sends the `former` one, too."""
    layout = Layout.of(arrays)
    start, mark = layout.flat(arrays), checksum(arrays)
    began = time.perf_counter()
    reply = call_next(message, context)
    seconds = time.perf_counter() - began
    if reply.has_error():
        return reply
    made = _model_in(reply.content, ask.arrays)
    strangers = [name for name in made if name not in arrays]
    if strangers:
        raise ValueError(f"the training function returned array {strangers[0]!r}, but the model has none of this name")
    move = layout.flat(made) - start
    if not is_sound(move):
        raise FloatingPointError(
            f"round {ask.round}: the training of client {ask.client} gave a move that is not finite, or far too large"
        )
    tensors, before = layout.tensors(move), former.move if former is not None else {}
    if ask.keeps == "client":
        metrics = {name: dict(record) for name, record in reply.content.metric_records.items()}
        round_before = former.round if former is not None else -1
        past = Past(ask.run, ask.client, ask.round, mark, tensors, metrics, before, round_before)
        try:
            pasts.write(owner.folder, past)
        except OSError as error:
            # The training is done and its move is good: only the next skip will have to be a training instead.
            why = f"its move could not be kept: {error.strerror or error} ({error.filename})"
            log(WARNING, "client %d, round %d: %s", ask.client, ask.round, why)
    answer = _answer(ask, "trained", since=ask.round, seconds=seconds, why=why)
    others = {name: record for name, record in reply.content.items() if not isinstance(record, ArrayRecord)}
    return _reply(message, ask, answer, tensors, others, before)


def _decides(owner: Owner, ask: Ask) -> bool:
    """The device's own decision."""
    rule = owner.schedule or schedules.live(can_train_now)
    budget = torch.tensor([ask.p], dtype=torch.float64)
    return bool(rule.decide(Moment(ask.round, ask.rounds, torch.tensor([ask.client]), budget, ask.seed))[0])


def can_train_now(client: int, round: int) -> bool:
    """The battery is well filled or charging, and the CPU has been little used for a moment: what "live" looks at."""
    import psutil

    # A load is measured over a stretch of time, and a ClientApp's process has often just begun.
    psutil.cpu_percent(interval=None)
    time.sleep(LOAD_SECONDS)
    return schedules.device_can_train()(client, round)


def _model_in(content: RecordDict, name: str) -> ArrayRecord:
    """The arrays that the training function returned: those called `name`, or the only ones."""
    found = content.array_records
    if name in found:
        return found[name]
    if len(found) != 1:
        raise ValueError(f"the training function returned {len(found)} array records, none of them called {name!r}")
    return next(iter(found.values()))


def _answer(ask: Ask, did: Did, **facts: Any) -> Answer:
    return Answer(ask.run, ask.round, ask.client, did, **facts)


def _reply(
    message: Message,
    ask: Ask,
    answer: Answer,
    move: Mapping[str, Tensor] | None = None,
    others: Mapping[str, Any] | None = None,
    before: Mapping[str, Tensor] | None = None,
) -> Message:
    content = RecordDict(dict(others or {}))
    for key, tensors in ((ask.arrays, move), (BEFORE, before)):
        if tensors:
            content[key] = ArrayRecord({name: Array(tensor.numpy()) for name, tensor in tensors.items()})
    content[KEY] = answer.record()
    return Message(content, reply_to=message)


def _client(context: Context) -> int:
    """Our own number for this device, from the SuperNode's node config."""
    for key in CLIENT_KEYS:
        value = context.node_config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if value is not None:
            raise ValueError(f"node config {key} is {value!r}, but it must be a whole number of at least 0")
    raise ValueError(
        f"the node config has neither {' nor '.join(CLIENT_KEYS)}: start with --node-config partition-id=N"
    )


def _owner(
    schedule: str | Schedule | None,
    p: float | None,
    trainings: float | None,
    folder: str | Path | None,
    config: Mapping[str, Any],
) -> Owner:
    """The owner's decisions, checked; the node config's are put in the place of the function's."""
    if "ccfed-p" in config or "ccfed-trainings" in config:
        p, trainings = _number(config, "ccfed-p"), _number(config, "ccfed-trainings")
        schedule = schedule if trainings is None else None
    if "ccfed-schedule" in config:
        schedule = str(config["ccfed-schedule"])
    if schedule is None and trainings is not None:
        schedule = "round-robin"  # a plan is kept exactly, whatever the server's schedule would draw
    place = str(config.get("ccfed-folder", folder) or os.environ.get("CCFED_DEVICES") or FOLDER)
    rule, name = (None, "") if schedule is None else (schedule, "own")
    if isinstance(rule, str):
        if rule not in schedules.SCHEDULES:
            raise ValueError(f"schedule is {rule!r}, but it must be one of {', '.join(schedules.SCHEDULES)}")
        name = rule if rule != "live" else "own"  # what happens at the moment, the server cannot work out
        rule = schedules.live(can_train_now) if rule == "live" else schedules.SCHEDULES[rule]()
    if p is not None and trainings is not None:
        raise ValueError("a device has both p and trainings, but each of them says how often it trains: give one")
    if p is not None and not 0 < p <= 1:
        raise ValueError(f"p is {p}, but it must lie in (0, 1]")
    if trainings is not None and not 1 <= trainings < math.inf:
        raise ValueError(f"trainings is {trainings}, but a device must afford at least 1")
    return Owner(rule, name, float(p or 0), float(trainings or 0), Path(place).expanduser())


def _number(config: Mapping[str, Any], key: str) -> float | None:
    value = config.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"node config {key} is {value!r}, but it must be a number")
    return value
