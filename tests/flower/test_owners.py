"""What the owner of a device decides, in the app or in the node config, and may decide anew."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from small_app import App
from test_federation import strategy

from ccfed import methods
from ccfed.data import Federation
from ccfed.flower import CCFedAvg, InProcessGrid, customize
from ccfed.flower.wire import KEY
from ccfed.simulation import Settings

ROUNDS = 8


def turns(app: App, clients: int) -> dict[int, list[int]]:
    """The rounds in which each client trained."""
    return {client: sorted(t for t, who in app.trained if who == client) for client in range(clients)}


def test_an_energy_plan_is_kept_whatever_the_server_draws(
    federation: Federation, first: ArrayRecord, tmp_path: Path
) -> None:
    configs = [{"partition-id": 0, "ccfed-trainings": 2}, {"partition-id": 1, "ccfed-trainings": 3}]
    app, folder = App(federation), tmp_path / "run"
    grid = InProcessGrid(app.app, configs)
    strategy([1.0, 1.0], schedule="ad-hoc").start(grid, first, num_rounds=ROUNDS, folder=folder)
    assert turns(app, 2) == {0: [0, 4], 1: [0, 2, 5]}
    assert np.load(folder / "federation.npz")["p"].tolist() == [2 / 8, 3 / 8]
    assert Settings.from_toml(folder / "experiment.toml").p == (1.0, 1.0)  # what the server was given


def test_the_node_config_wins_over_the_app(federation: Federation, first: ArrayRecord) -> None:
    configs = [
        {"partition-id": 0},
        {"partition-id": 1, "ccfed-p": 0.5, "ccfed-schedule": "round-robin"},
        {"partition-id": 2, "ccfed-trainings": 2},
    ]
    app = App(federation, trainings=1)
    strategy([1.0] * 3).start(InProcessGrid(app.app, configs), first, num_rounds=ROUNDS)
    assert turns(app, 3) == {0: [0], 1: [0, 2, 4, 6], 2: [0, 4]}
    busy = App(federation, can_train=lambda client, round: True)
    strategy([1.0]).start(InProcessGrid(busy.app, [configs[2] | {"partition-id": 0}]), first, num_rounds=ROUNDS)
    assert turns(busy, 1) == {0: [0, 4]}


def test_an_owner_may_decide_anew(federation: Federation, first: ArrayRecord) -> None:
    plain = {"partition-id": 0}
    app = App(federation)
    grid = InProcessGrid(app.app, [plain | {"ccfed-p": 0.125, "ccfed-schedule": "round-robin"}])

    def after(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round == 4:
            grid._nodes[0].context.node_config = dict(plain)
            grid.restart(0)
        return None

    strategy([0.5], schedule="round-robin", keep="client").start(grid, first, num_rounds=ROUNDS, evaluate_fn=after)
    assert turns(app, 1) == {0: [0, 6]}  # what was decided anew holds from the next round on


def test_what_is_told_while_a_round_is_played_holds_from_the_next_one_on() -> None:
    class Late(InProcessGrid):
        """Client 1 comes when client 0 has been asked to train."""

        def get_nodes(self) -> Iterable[NodeInfo]:
            nodes = list(super().get_nodes())
            return nodes if asked else nodes[:1]

    asked: list[int] = []
    app = ClientApp()

    @app.train(mods=[customize()])
    def train(message: Message, context: Context) -> Message:
        asked.append(message.content[KEY]["steps"])
        move = asked[-1] * (1 + context.node_config["partition-id"])
        x = message.content["arrays"]["x"].numpy() + np.float32(move)
        return Message(RecordDict({"arrays": ArrayRecord({"x": Array(x)})}), reply_to=message)

    first = ArrayRecord({"x": Array(np.zeros(1, dtype=np.float32))})
    made = CCFedAvg(
        methods.fednova([1.0, 1.0]), steps=4, min_available_nodes=1, weighted_by_key=None, fraction_evaluate=0
    )
    configs = [{"partition-id": 0}, {"partition-id": 1, "ccfed-p": 0.5}]
    x = made.start(Late(app, configs), first, num_rounds=2).arrays["x"].numpy()
    assert asked == [4, 4, 4, 2]
    assert x.tolist() == [1.5 * 4 + 1.5 * 3]  # the mean move per step, times the mean number of steps


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"ccfed-p": "0.5"}, "node config ccfed-p is '0.5', but it must be a number"),
        ({"ccfed-p": True}, "node config ccfed-p is True, but it must be a number"),
        ({"ccfed-trainings": "many"}, "node config ccfed-trainings is 'many'"),
        ({"ccfed-p": 0.5, "ccfed-trainings": 3}, "both p and trainings"),
        ({"ccfed-schedule": 5}, "schedule is '5'"),
        ({"partition-id": "first"}, "partition-id is 'first'"),
    ],
)
def test_a_node_config_that_cannot_be_is_told(
    federation: Federation, first: ArrayRecord, config: dict[str, object], message: str
) -> None:
    grid = InProcessGrid(App(federation).app, [{"partition-id": 0} | config])
    with pytest.raises(RuntimeError, match=re.escape(message)):
        strategy([1.0]).start(grid, first)
