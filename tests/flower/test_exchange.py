"""Errors and silences find the right client, and a client that comes back is asked again."""

import logging
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, Error, Message, Metadata, MetricRecord
from flwr.app.message import make_message
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from small_app import STEPS, App, vector

from ccfed.data import Federation
from ccfed.flower import CCFedAvg, InProcessGrid, Patience
from ccfed.flower.wire import KEY

CLIENTS, ROUNDS = 4, 3


class Flaky(InProcessGrid):
    """A grid on which something happens to the first message for client 2 in round 1."""

    def __init__(self, app: App, happens: str) -> None:
        super().__init__(app.app, CLIENTS)
        self.happens, self.times = happens, 0

    def _answer(self, message: Message) -> Message:
        record = message.content.config_records[KEY]
        if self.happens and (record["kind"], record["round"], record["client"]) == ("round", 1, 2):
            self.times += 1
            if self.happens == "crash":
                self.happens = ""
                return Message(Error(ErrorCode.CLIENT_APP_CRASHED, "killed by the system"), reply_to=message)
            if self.happens == "crash again and again":
                return Message(Error(ErrorCode.CLIENT_APP_CRASHED, "killed by the system"), reply_to=message)
            if self.happens == "gone":
                self.happens = ""
                self.restart(2)
                return self._from_the_link(message)
            if self.happens == "gone for good":
                del self._nodes[2]
                self.happens = ""
                return self._from_the_link(message)
            if self.happens == "trained, then gone":
                self.happens = ""
                super()._answer(message)
                self.restart(2)
                return self._from_the_link(message)
        return super()._answer(message)

    def _from_the_link(self, message: Message) -> Message:
        """The error that a SuperLink makes itself: only the id of the message tells whose it is."""
        metadata = Metadata(
            run_id=message.metadata.run_id,
            message_id="",
            src_node_id=SUPERLINK_NODE_ID,
            dst_node_id=SUPERLINK_NODE_ID,
            reply_to_message_id=message.metadata.message_id,
            group_id="",
            created_at=message.metadata.created_at,
            ttl=1.0,
            message_type="system",
        )
        return make_message(metadata=metadata, error=Error(ErrorCode.NODE_UNAVAILABLE, "no heartbeat"))


def start(
    federation: Federation, first: ArrayRecord, happens: str, devices: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[torch.Tensor], CCFedAvg, Flaky, App]:
    monkeypatch.setenv("CCFED_DEVICES", str(devices / happens.replace(" ", "-")))
    app, models = App(federation), []
    grid = Flaky(app, happens)

    def keep(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        models.append(vector(arrays))
        return None

    strategy = CCFedAvg(
        [1.0, 0.5, 1.0, 0.5],
        schedule="round-robin",
        steps=STEPS,
        fraction_evaluate=0,
        weighted_by_key=None,
        patience=Patience(absent=0.3),
    )
    strategy.start(grid, first, num_rounds=ROUNDS, evaluate_fn=keep)
    return models, strategy, grid, app


@pytest.mark.parametrize("happens", ["crash", "gone", "trained, then gone"])
def test_a_client_that_can_answer_is_asked_again(
    federation: Federation, first: ArrayRecord, happens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, *_ = start(federation, first, "", tmp_path, monkeypatch)
    models, strategy, grid, app = start(federation, first, happens, tmp_path, monkeypatch)
    assert all(torch.equal(mine, straight) for mine, straight in zip(models, expected, strict=True))
    assert grid.times == 1
    assert len(app.trained) == len(set(app.trained))  # whoever had trained did not train again
    assert strategy.journal.counts.get("repeated", 0) == (happens == "trained, then gone")


@pytest.mark.parametrize("happens", ["crash again and again", "gone for good"])
def test_a_client_that_cannot_is_left_out(
    federation: Federation, first: ArrayRecord, happens: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, strategy, grid, _ = start(federation, first, happens, tmp_path, monkeypatch)
    records = strategy.journal.records
    assert [record.silent for record in records] == ([0, 1, 1] if happens == "gone for good" else [0, 1, 0])
    assert grid.times == (1 if happens == "gone for good" else Patience().often)


def test_an_answer_that_never_comes_is_waited_for_as_long_as_was_said(
    federation: Federation, first: ArrayRecord
) -> None:
    class Silent(InProcessGrid):
        def pull_messages(self, message_ids: object) -> list[Message]:
            replies = super().pull_messages(message_ids)  # type: ignore[arg-type]
            return [r for r in replies if r.content[KEY]["did"] == "told" or r.content[KEY]["client"] != 1]

    strategy = CCFedAvg([1.0] * 3, keep="server", fraction_evaluate=0, patience=Patience(absent=0.0))
    strategy.start(Silent(App(federation).app, 3), first, num_rounds=1, timeout=0.5)
    assert list(strategy.failed) == [1]
    assert "no answer within" in strategy.failed[1]
    assert [(r.trained, r.silent) for r in strategy.journal.records] == [(2, 1)]


def test_two_nodes_that_say_they_are_the_same_client_count_once(federation: Federation, first: ArrayRecord) -> None:
    app = App(federation)
    twins = InProcessGrid(app.app, [{"partition-id": 0}, {"partition-id": 1}, {"partition-id": 1}])
    strategy = CCFedAvg([1.0, 1.0], fraction_evaluate=0)
    strategy.start(twins, first, num_rounds=2)
    assert sorted(app.trained) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_of_two_that_say_so_the_one_started_last_counts_and_both_are_asked_once(
    federation: Federation, first: ArrayRecord, caplog: pytest.LogCaptureFixture
) -> None:
    class LastFirst(InProcessGrid):
        asked: list[int]

        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            return super().pull_messages(reversed(list(message_ids)))

        def _answer(self, message: Message) -> Message:
            if message.content.config_records[KEY]["kind"] == "who":
                self.asked.append(message.metadata.dst_node_id)
            return super()._answer(message)

    app = App(federation)
    twins = LastFirst(app.app, [{"partition-id": 0}, {"partition-id": 1}, {"partition-id": 1}])
    twins.asked = []

    with caplog.at_level(logging.WARNING, logger="flwr"):
        CCFedAvg([1.0, 1.0], fraction_evaluate=0).start(twins, first, num_rounds=3)
    ids = list(twins.get_node_ids())
    assert sorted(twins.asked) == ids
    assert f"client 1 is at node {ids[2]} and was at node {ids[1]}" in caplog.text
    assert sorted(app.trained) == [(t, client) for t in range(3) for client in (0, 1)]
