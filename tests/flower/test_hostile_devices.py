"""Whatever a broken or hostile device sends, the run goes on without it."""

import io
import logging
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    Metadata,
    MetricRecord,
    RecordDict,
)
from flwr.app.message import make_message
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode

from ccfed.flower import CCFedAvg, InProcessGrid, Patience, customize
from ccfed.flower.arrays import Layout, Refused
from ccfed.flower.wire import KEY

LIAR, ROUNDS = 1, 3


def file_of_numpy(header: str, body: bytes = b"") -> bytes:
    """The bytes that NumPy's reader takes for an array with this header."""
    line = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + body


def archive() -> bytes:
    out = io.BytesIO()
    np.savez(out, x=np.zeros(2, dtype=np.float32))
    return out.getvalue()


FILES = {
    "an archive": archive(),
    "petabytes": file_of_numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }"),
    "beyond all numbers": file_of_numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (10" + 30 * "0" + ",), }"),
    "open brackets": file_of_numpy("{'descr': (((("),
    "deeply nested": file_of_numpy("-" * 9000 + "1"),
    "objects": file_of_numpy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", bytes(16)),
    "cut off": file_of_numpy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", bytes(3)),
    "another order of bytes": file_of_numpy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", bytes(8)),
    "nothing": b"",
}


@pytest.mark.parametrize("file", FILES)
def test_bytes_that_are_no_such_array_are_refused(file: str) -> None:
    layout = Layout.of(ArrayRecord({"x": Array(np.zeros(2, dtype=np.float32))}))
    sent = ArrayRecord({"x": Array("float32", (2,), "numpy.ndarray", FILES[file])})
    with pytest.raises(Refused, match="array 'x'"):
        layout.flat(sent)


def start(spoil: Callable[[RecordDict], None], when: str, grid: type[InProcessGrid] = InProcessGrid) -> CCFedAvg:
    """Three devices, one of which sends what `spoil` makes of its answer of the second round, or of who it is."""
    honest, app = ClientApp(), ClientApp(mods=[liar(spoil, when)])

    @honest.train(mods=[customize()])
    def train(message: Message, context: Context) -> Message:
        x = message.content["arrays"]["x"].numpy()
        content = {"arrays": ArrayRecord({"x": Array(x + 1)}), "metrics": MetricRecord({"num-examples": 10})}
        return Message(RecordDict(content), reply_to=message)

    app.train()(lambda message, context: honest(message, context))
    patience = Patience(absent=0.0)
    strategy = CCFedAvg([1.0] * 3, min_available_nodes=2, fraction_evaluate=0, patience=patience)
    first = ArrayRecord({"x": Array(np.zeros(2, dtype=np.float32))})
    result = strategy.start(grid(app, 3), first, num_rounds=ROUNDS)
    assert result.arrays["x"].numpy().tolist() == [ROUNDS] * 2
    return strategy


def liar(spoil: Callable[[RecordDict], None], when: str) -> Callable[..., Message]:
    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        reply = call_next(message, context)
        told = reply.content[KEY]["did"] == "told"
        if context.node_config["partition-id"] == LIAR and (told if when == "told" else reply.content[KEY]["round"]):
            spoil(reply.content)
        return reply

    return mod


def says(**facts: object) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        content[KEY] = ConfigRecord({**content[KEY], **facts})  # type: ignore[dict-item]

    return spoil


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"p": 5.0}, "p is 5.0"),
        ({"p": float("nan")}, "p is nan"),
        ({"trainings": 0.5}, "0.5 trainings"),
        ({"schedule": "on sundays"}, "its schedule is 'on sundays'"),
        ({"schedule": "live"}, "its schedule is 'live'"),
        ({"client": 77}, "client 77, but there are clients 0 to 2"),
    ],
)
def test_a_device_that_says_what_cannot_be_is_left_out(
    facts: dict[str, object], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="flwr"):
        strategy = start(says(**facts), "told")
    assert strategy.journal.counts == {"trained": 2 * ROUNDS, "failed": ROUNDS}
    assert reason in caplog.text


def test_a_move_that_no_sum_can_hold_is_refused() -> None:
    def spoil(content: RecordDict) -> None:
        content["arrays"] = ArrayRecord({"x": Array(np.full(2, 3e38, dtype=np.float32))})

    strategy = start(spoil, "trained")
    assert "too large" in strategy.refused[LIAR]
    assert strategy.journal.counts == {"trained": 2 * ROUNDS + 1, "refused": ROUNDS - 1}


def test_a_weight_beyond_all_measure_is_refused() -> None:
    def spoil(content: RecordDict) -> None:
        content["metrics"]["num-examples"] = 1e308

    strategy = start(spoil, "trained")
    assert "1e+308" in strategy.refused[LIAR]
    assert strategy.journal.counts == {"trained": 2 * ROUNDS + 1, "refused": ROUNDS - 1}


class LikeALink(InProcessGrid):
    """Answers that were pulled in vain are lost, as they are at a SuperLink."""

    def __init__(self, app: ClientApp, clients: int) -> None:
        super().__init__(app, clients)
        self.lost: set[str] = set()

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        ids = list(message_ids)
        try:
            return [unavailable(id) for id in ids if id in self.lost] + list(super().pull_messages(ids))
        except TypeError:
            self.lost.update(ids)
            self._held = {id: message for id, message in self._held.items() if id not in ids}
            raise


def unavailable(id: str) -> Message:
    link = {"src_node_id": SUPERLINK_NODE_ID, "dst_node_id": SUPERLINK_NODE_ID, "message_type": "system"}
    metadata = Metadata(1, "", reply_to_message_id=id, group_id="", created_at=0.0, ttl=0.0, **link)  # type: ignore[arg-type]
    return make_message(metadata=metadata, error=Error(ErrorCode.MESSAGE_UNAVAILABLE, "it is not there"))


def test_an_answer_that_flower_cannot_read_costs_nobody_else_its_own() -> None:
    def spoil(content: RecordDict) -> None:
        content["arrays"]["x"].shape = ("many",)

    strategy = start(spoil, "trained", LikeALink)
    assert strategy.failed == {LIAR: "it is not there"}
    assert sum(record.trained for record in strategy.journal.records) == 2 * ROUNDS + 1
    assert strategy.journal.counts["failed"] == ROUNDS - 1


def test_an_introduction_that_flower_cannot_read_keeps_nobody_else_out() -> None:
    def spoil(content: RecordDict) -> None:
        content["x"] = ArrayRecord({"x": Array(np.zeros(1, dtype=np.float32))})
        content["x"]["x"].shape = ("many",)

    strategy = start(spoil, "told", LikeALink)
    assert strategy.journal.counts == {"trained": 2 * ROUNDS, "failed": ROUNDS}
