"""Files, answers and devices that are lost: what the server believed is put right, and the run goes on."""

import errno
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from small_app import CLIENTS, App, vector
from test_federation import rows, strategy
from test_same_as_simulation import METHODS

from ccfed.data import Federation
from ccfed.flower import InProcessGrid, Patience
from ccfed.flower import past as pasts
from ccfed.flower.journal import DeviceRow, _begin_table, _row_text
from ccfed.flower.wire import KEY


class Deaf(InProcessGrid):
    """A grid that loses what `clients` answer in round `round`."""

    def __init__(self, app: App, nodes: int, clients: set[int], round: int) -> None:
        super().__init__(app.app, nodes)
        self.clients, self.round = clients, round

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = super().pull_messages(message_ids)
        return [reply for reply in replies if not self._is_lost(reply.content[KEY])]

    def _is_lost(self, note: ConfigRecord) -> bool:
        return note["did"] != "told" and note["round"] == self.round and note["client"] in self.clients


def test_a_training_whose_answer_was_lost_counts_at_the_next_skip(
    federation: Federation, first: ArrayRecord, tmp_path: Path
) -> None:
    app = App(federation)
    made = strategy([1.0, 0.5, 0.5, 0.5], schedule="round-robin")
    grid = Deaf(app, 4, {3}, round=2)
    made.start(grid, first, num_rounds=9, timeout=0.3, folder=tmp_path / "run")
    assert [(r.trained, r.silent) for r in made.journal.records][2] == (3, 1)
    later = [row for row in rows(tmp_path / "run") if row["client"] == "3" and row["round"] == "3"]
    assert later[0]["did"] == "skipped"  # with the move of round 2, which the server had not heard of
    assert sorted(t for t, client in app.trained if client == 3) == [0, 2, 4, 6, 8]
    assert made.course is not None
    assert made.course.history.last_rounds(torch.arange(4)).tolist() == [8] * 4


@pytest.mark.parametrize("name", ["cc-fedavg", "strategy-2", "shrinking"])
def test_lost_answers_and_lost_files_do_not_stop_a_run(
    federation: Federation, first: ArrayRecord, devices: Path, name: str, tmp_path: Path
) -> None:
    app, folder = App(federation), tmp_path / "run"
    grid = Deaf(app, CLIENTS, {1, 3}, round=2)

    def after(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round in (4, 5):
            for file in devices.glob("client-*"):
                file.unlink()
        return None

    made = strategy(METHODS[name])
    result = made.start(grid, first, num_rounds=7, timeout=0.3, evaluate_fn=after, folder=folder)
    assert bool(torch.isfinite(vector(result.arrays)).all())
    told = [row for row in rows(folder) if row["why"].endswith("is missing")]
    assert told
    assert {row["did"] for row in told} == {"trained"}
    if name == "shrinking":  # even those whose turn it was have lost the move before
        assert {row["client"] for row in told} == {str(client) for client in range(CLIENTS)}


def test_a_device_that_cannot_keep_its_move_still_sends_it(
    federation: Federation, first: ArrayRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(folder: Path, past: pasts.Past) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder / "client"))

    straight = strategy([1.0, 1.0]).start(InProcessGrid(App(federation).app, 2), first, num_rounds=3)
    monkeypatch.setattr(pasts, "write", full)
    app, made = App(federation), strategy([0.5, 1.0], schedule="round-robin")
    result = made.start(InProcessGrid(app.app, 2), first, num_rounds=3, folder=tmp_path / "run")
    assert torch.equal(vector(result.arrays), vector(straight.arrays))  # client 0 trains, having nothing to repeat
    assert all("No space left on device" in row["why"] for row in rows(tmp_path / "run"))
    assert made.journal.counts == {"trained": 6}


def test_a_device_that_is_gone_for_good_is_waited_for_once(federation: Federation, first: ArrayRecord) -> None:
    app, patience = App(federation), Patience(absent=2.0)
    made = strategy([1.0] * 3, min_available_nodes=2, patience=patience)
    made.start(InProcessGrid(app.app, 2), first, num_rounds=4)
    assert [record.silent for record in made.journal.records] == [1] * 4
    assert sum(record.seconds for record in made.journal.records[1:]) < 2.0


def test_a_node_that_never_says_who_it_is_holds_up_a_round_no_longer(
    federation: Federation, first: ArrayRecord
) -> None:
    class Mute(InProcessGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            mute = {id for id, message in self._held.items() if message.metadata.dst_node_id == self._nodes[-1].id}
            return super().pull_messages([id for id in message_ids if id not in mute])

    made = strategy([1.0] * 3, min_available_nodes=2, patience=Patience(absent=1.0))
    made.start(Mute(App(federation).app, 3), first, num_rounds=2)
    assert [record.silent for record in made.journal.records] == [1, 1]
    assert sum(record.seconds for record in made.journal.records) < 10


def test_a_table_of_devices_that_a_power_cut_has_torn_is_taken_up(tmp_path: Path) -> None:
    table = tmp_path / "devices.csv"
    _begin_table(table, 0)
    good = [_row_text(DeviceRow(t, client, "trained", 0.5, 10, 20, "voilà")) for t in (0, 1) for client in (0, 1)]
    table.write_bytes(table.read_bytes() + "".join(good).encode() + b"\0\0\xff\n\n1,0,trai")
    _begin_table(table, 1)
    assert table.read_text(encoding="utf-8").splitlines(keepends=True)[1:] == good[:2]
