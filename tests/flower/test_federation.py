"""Whole federations in this process: who is asked, what travels, what happens when devices fail, come back or lie."""

import csv
import itertools
import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.proto.node_pb2 import NodeInfo
from small_app import CLIENTS, STEPS, App, evaluator, simulated, vector

from ccfed import budgets, data, methods, schedules
from ccfed.data import Federation
from ccfed.flower import CCFedAvg, InProcessGrid, Patience, customize
from ccfed.flower.device import can_train_now
from ccfed.flower.wire import KEY
from ccfed.records import read_rounds

P = budgets.levels(CLIENTS, beta=4)
MODEL_BYTES = 4 * (64 * 12 + 12 + 12 * 10 + 10)
HEADERS = 4 * 128  # NumPy's, one an array
SHORT = Patience(absent=0.0)


def strategy(method: object = P, **choices: object) -> CCFedAvg:
    standard = {"seed": 5, "steps": STEPS, "fraction_evaluate": 0, "weighted_by_key": None, "patience": SHORT}
    return CCFedAvg(method, **(standard | choices))  # type: ignore[arg-type]


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "devices.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_runs_repeat_to_the_bit_whatever_the_order_of_the_nodes(
    federation: Federation, first: ArrayRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    models = []
    for attempt, order in enumerate((range(CLIENTS), reversed(range(CLIENTS)))):
        monkeypatch.setenv("CCFED_DEVICES", str(tmp_path / str(attempt)))
        grid = InProcessGrid(App(federation).app, [{"partition-id": i} for i in order])
        models.append(vector(strategy().start(grid, first, num_rounds=5).arrays))
    assert torch.equal(models[0], models[1])


def test_a_foreseen_skip_is_not_asked_if_the_server_keeps_the_past(federation: Federation, first: ArrayRecord) -> None:
    sent = {}
    for keep in ("client", "server", "mixed"):
        app = App(federation)
        grid = InProcessGrid(app.app, CLIENTS)
        made = strategy(keep=keep)
        made.start(grid, first, num_rounds=8)
        records = made.journal.records
        trained, estimated = sum(r.trained for r in records), sum(r.estimated for r in records)
        asked = trained + sum(int(r.estimated) if keep == "client" else 0 for r in records)
        if keep != "mixed":
            down, up = sum(r.bytes_down for r in records), sum(r.bytes_up for r in records)
            assert asked * (MODEL_BYTES + HEADERS) < up < asked * (MODEL_BYTES + HEADERS + 1000)
            assert asked * (MODEL_BYTES + HEADERS) < down < asked * (MODEL_BYTES + HEADERS + 1000)
        assert trained + estimated == 8 * CLIENTS
        assert len(app.trained) == trained
        sent[keep] = grid.sent
    assert sent["server"] < sent["mixed"] < sent["client"]


def test_strategy_1_leaves_skippers_in_peace(federation: Federation, first: ArrayRecord) -> None:
    app = App(federation)
    made = strategy(methods.strategy_1(P))
    made.start(InProcessGrid(app.app, CLIENTS), first, num_rounds=4)
    for record in made.journal.records:
        assert record.silent == CLIENTS - record.trained
        assert record.bytes_up < record.trained * (MODEL_BYTES + HEADERS + 1000)
    assert any(record.silent for record in made.journal.records)


def test_weights_by_samples_are_the_simulations(federation: Federation, first: ArrayRecord) -> None:
    uneven = federation.data.split(uneven_split(federation), clients=CLIENTS)
    run = simulated(uneven, methods.cc_fedavg(P), 5, seeds=[5], weights="samples")["cc-fedavg"].runs[0]
    made = strategy(weighted_by_key="num-examples")
    result = made.start(InProcessGrid(App(uneven).app, CLIENTS), first, num_rounds=5)
    assert torch.allclose(vector(result.arrays).double(), torch.from_numpy(run.model), rtol=1e-5, atol=1e-6)
    weights = np.array([int(size) for size in uneven.sizes], dtype=float)
    losses = [float(answer.content["metrics"]["train_loss"]) for answer in made.taken.values() if answer.trained]
    who = [client for client, answer in made.taken.items() if answer.trained]
    expected = np.average(losses, weights=weights[who])
    assert result.train_metrics_clientapp[5]["train_loss"] == pytest.approx(expected)


def uneven_split(federation: Federation) -> object:
    """A split with very different sizes."""
    ends = np.linspace(0, 1, CLIENTS + 1) ** 2 * len(federation.data.train_y)
    lists = [np.arange(max(1, int(a)), max(int(a) + 5, int(b))) for a, b in itertools.pairwise(ends)]
    return data.explicit([part[part < len(federation.data.train_y)] for part in lists])


def test_some_clients_a_round(federation: Federation, first: ArrayRecord) -> None:
    app, method = App(federation), methods.cc_fedavg(P)
    made = strategy(fraction_train=0.4)
    result = made.start(InProcessGrid(app.app, CLIENTS), first, num_rounds=8)
    run = simulated(federation, method, 8, seeds=[5], participation=0.4)["cc-fedavg"].runs[0]
    assert torch.allclose(vector(result.arrays).double(), torch.from_numpy(run.model), rtol=1e-5, atol=1e-6)
    assert [r.selected for r in made.journal.records] == [3] * 8


# Who decides


def test_owners_decide_about_their_devices(federation: Federation, first: ArrayRecord) -> None:
    configs = [{"partition-id": i} for i in range(4)]
    configs[0] |= {"ccfed-p": 0.5, "ccfed-schedule": "round-robin"}
    configs[1] |= {"ccfed-trainings": 2}
    configs[2] |= {"ccfed-schedule": "always"}
    app = App(federation)
    made = strategy([0.25] * 4, schedule="round-robin")
    made.start(InProcessGrid(app.app, configs), first, num_rounds=8)
    when = {client: [t for t, who in app.trained if who == client] for client in range(4)}
    assert when == {0: [0, 2, 4, 6], 1: [0, 4], 2: list(range(8)), 3: [0, 4]}


def test_a_device_that_decides_at_the_moment_is_asked(federation: Federation, first: ArrayRecord) -> None:
    app = App(federation, can_train=lambda client, round: round % 3 == 0)
    grid = InProcessGrid(app.app, 2)
    for keep in ("client", "server"):
        app.trained.clear()
        made = strategy([0.5, 0.5], keep=keep)
        made.start(grid, first, num_rounds=5)
        assert sorted(app.trained) == [(0, 0), (0, 1), (3, 0), (3, 1)]
        skips = [record for record in made.journal.records if not record.trained]
        assert all(record.bytes_down > 2 * MODEL_BYTES for record in skips)
        assert all((record.bytes_up > 2 * MODEL_BYTES) == (keep == "client") for record in skips)


def test_a_schedule_of_ones_own_on_the_device(federation: Federation, first: ArrayRecord) -> None:
    late = schedules.Schedule("late", lambda now: now.clients * 0 + now.round >= 2)
    app = App(federation, schedule=late)
    strategy([0.5, 0.5]).start(InProcessGrid(app.app, 2), first, num_rounds=4)
    assert sorted(app.trained) == [(t, client) for t in (0, 2, 3) for client in (0, 1)]  # 0: nothing to repeat yet


def test_a_live_device_reads_its_battery_and_load() -> None:
    assert can_train_now(0, 0) in (True, False)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"schedule": "sometimes"}, "schedule is 'sometimes'"),
        ({"p": 0.0}, "p is 0.0"),
        ({"p": 0.5, "trainings": 3}, "both p and trainings"),
        ({"trainings": 0}, "trainings is 0"),
        ({"schedule": "always", "can_train": lambda client, round: True}, "both schedule and can_train"),
    ],
)
def test_bad_choices_of_an_owner_are_refused_at_once(choices: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        customize(**choices)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "choices", "message"),
    [
        ([P], {"keep": "nowhere"}, "keep is 'nowhere'"),
        ([P], {"schedule": "sometimes"}, "schedule is 'sometimes'"),
        ([P], {"fraction_train": 0.0}, "fraction_train is 0.0"),
        ([P], {"steps": 0}, "steps is 0"),
        ([P], {"clients": 3}, "clients is 3"),
        ([[0.5, 1.5]], {}, "p is 1.5 for client 1"),
        ([methods.fedavg()], {}, "clients is None"),
        ([methods.mifa(P)], {"keep": "client"}, "keep='server'"),
    ],
)
def test_bad_choices_of_the_server_are_refused_at_once(
    arguments: list[object], choices: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CCFedAvg(*arguments, **choices)  # type: ignore[arg-type]


# What goes wrong


def test_a_restarted_node_keeps_its_past(federation: Federation, first: ArrayRecord) -> None:
    def start(restart: bool) -> torch.Tensor:
        grid = InProcessGrid(App(federation).app, CLIENTS)

        def each_round(server_round: int, arrays: ArrayRecord) -> None:
            if restart and server_round:
                for client in range(CLIENTS):
                    grid.restart(client)

        return vector(strategy().start(grid, first, num_rounds=5, evaluate_fn=each_round).arrays)

    assert torch.equal(start(restart=False), start(restart=True))


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "of another run"])
def test_a_lost_past_makes_a_client_train_instead_of_skip(
    federation: Federation, first: ArrayRecord, devices: Path, damage: str, tmp_path: Path
) -> None:
    app = App(federation)
    file = devices / "client-1.safetensors"

    def after_round(server_round: int, arrays: ArrayRecord) -> None:
        if server_round != 2:
            return
        content = bytearray(file.read_bytes())
        if damage == "missing":
            file.unlink()
        elif damage == "cut":
            file.write_bytes(content[:-7])
        elif damage == "flipped":
            content[-5] ^= 1
            file.write_bytes(content)
        else:
            file.write_bytes((devices / "client-0.safetensors").read_bytes())

    made = strategy([0.25, 0.25, 1.0], schedule="round-robin")
    made.start(InProcessGrid(app.app, 3), first, num_rounds=4, evaluate_fn=after_round, folder=tmp_path / "run")
    assert [t for t, client in app.trained if client == 1] == [0, 2]
    told = [row for row in rows(tmp_path / "run") if row["client"] == "1" and row["round"] == "2"]
    assert told[0]["did"] == "trained"
    assert "client-" in told[0]["why"]


@pytest.mark.parametrize("keep", ["client", "server"])
def test_a_client_that_fails_is_estimated_or_left_out(
    federation: Federation, first: ArrayRecord, keep: str, tmp_path: Path
) -> None:
    app = App(federation)

    def fail(client: int, round: int, content: RecordDict) -> None:
        if client == 2 and round == 1:
            raise RuntimeError("out of battery")

    app.break_it = fail
    made = strategy([1.0] * 4, keep=keep)
    made.start(InProcessGrid(app.app, 4), first, num_rounds=3, folder=tmp_path / "run")
    estimated, silent = [(r.estimated, r.silent) for r in made.journal.records][1]
    assert (estimated, silent) == ((1, 0) if keep == "server" else (0, 1))
    failed = [row for row in rows(tmp_path / "run") if row["did"] == "failed"]
    assert [(row["round"], row["client"]) for row in failed] == [("1", "2")]
    assert "out of battery" in failed[0]["why"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["failed"], summary["refused"]) == (1, 0)


def liar(spoil: Callable[[RecordDict], None]) -> Callable[[Message, Context, object], Message]:
    """A mod outside of ours: client 1's answers of round 1 are changed on their way out."""

    def mod(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        reply = call_next(message, context)
        record = reply.content[KEY]
        if record["client"] == 1 and record["round"] == 1 and record["did"] != "told":
            spoil(reply.content)
        return reply

    return mod  # type: ignore[return-value]


def change(name: str, value: object) -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        content[KEY] = ConfigRecord({**content[KEY], name: value})  # type: ignore[dict-item]

    return spoil


def arrays_become(make: Callable[[np.ndarray], np.ndarray], rename: str = "") -> Callable[[RecordDict], None]:
    def spoil(content: RecordDict) -> None:
        arrays = dict(content["arrays"])
        name = next(iter(arrays))
        array = Array(make(arrays.pop(name).numpy().copy()))
        content["arrays"] = ArrayRecord({**arrays, rename or name: array})

    return spoil


def extra(content: RecordDict) -> None:
    content["arrays"]["more"] = Array(np.zeros(3, dtype=np.float32))


def garbage(content: RecordDict) -> None:
    name, array = next(iter(content["arrays"].items()))
    content["arrays"][name] = Array(array.dtype, tuple(array.shape), array.stype, b"not an array")


LIES = {
    "nan": (arrays_become(lambda a: a * np.float32("nan")), "not finite"),
    "shape": (arrays_become(lambda a: a[:-1]), "float32 [11, 64], not"),
    "kind": (arrays_become(lambda a: a.astype(np.float64)), "float64"),
    "name": (arrays_become(lambda a: a, rename="other"), "'other' is not one of"),
    "extra": (extra, "'more' is not one of"),
    "garbage": (garbage, "cannot be read"),
    "no arrays": (lambda content: content.pop("arrays"), "no arrays 'arrays'"),
    "stale": (change("round", 0), "for round 0, which is past"),
    "other client": (change("client", 0), "of client 0"),
    "other run": (change("run", "elsewhere"), "in run 'elsewhere'"),
    "lazy": (change("did", "skipped"), "'skipped', but the client was to train"),
    "no record": (lambda content: content.pop(KEY), "no record"),
    "half a record": (change("since", "yesterday"), "'yesterday' as since"),
    "no weight": (lambda content: content["metrics"].pop("num-examples"), "'num-examples'"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_bad_answer_is_refused_and_counted_and_the_round_goes_on(
    federation: Federation, first: ArrayRecord, lie: str, tmp_path: Path
) -> None:
    spoil, reason = LIES[lie]
    honest = App(federation)
    app = ClientApp(mods=[liar(spoil)])
    app._registered_funcs = {}
    app.train()(lambda message, context: honest.app(message, context))
    made = strategy([1.0] * 3, weighted_by_key="num-examples")
    folder = tmp_path / "run"
    result = made.start(InProcessGrid(app, 3), first, num_rounds=3, folder=folder)
    assert bool(torch.isfinite(vector(result.arrays)).all())
    refused = [row for row in rows(folder) if row["did"] == "refused"]
    assert [(row["round"], row["client"]) for row in refused] == [("1", "1")]
    assert reason in refused[0]["why"]
    assert [record.trained for record in read_rounds(folder / "rounds.csv")] == [3, 2, 3]
    assert json.loads((folder / "summary.json").read_text())["refused"] == 1


def test_a_move_that_is_not_finite_stays_on_the_device(
    federation: Federation, first: ArrayRecord, devices: Path
) -> None:
    app = App(federation)

    def spoil(client: int, round: int, content: RecordDict) -> None:
        if client == 1 and round == 1:
            arrays_become(lambda a: a * np.float32("inf"))(content)

    app.break_it = spoil
    made = strategy([1.0, 1.0])
    made.start(InProcessGrid(app.app, 2), first, num_rounds=2)
    assert made.journal.counts == {"trained": 3, "failed": 1}
    assert torch.isfinite(torch.cat([t.flatten() for t in _moves(devices / "client-1.safetensors")])).all()


def test_an_array_that_the_model_does_not_have_is_no_answer(federation: Federation, first: ArrayRecord) -> None:
    app = App(federation)

    def add(client: int, round: int, content: RecordDict) -> None:
        if client == 1 and round == 1:
            extra(content)

    app.break_it = add
    made = strategy([1.0, 1.0])
    made.start(InProcessGrid(app.app, 2), first, num_rounds=2)
    assert "'more'" in made.failed[1]
    assert made.journal.counts == {"trained": 3, "failed": 1}


def test_a_client_without_a_past_that_should_skip_trains_and_that_is_written_down(
    federation: Federation, first: ArrayRecord, tmp_path: Path
) -> None:
    app, made = App(federation), strategy([0.25] * 4, schedule="round-robin", fraction_train=0.5)
    made.start(InProcessGrid(app.app, 4), first, num_rounds=4, folder=tmp_path / "run")
    told = [row for row in rows(tmp_path / "run") if row["why"]]
    assert told
    assert all(row["round"] != "0" and row["did"] == "trained" for row in told)  # in round 0 it is everybody's turn
    assert all("no training before" in row["why"] for row in told)


def _moves(file: Path) -> list[torch.Tensor]:
    from ccfed.files import load

    return list(load(file).tensors.values())


def test_an_app_without_the_mod_is_told_what_is_missing(first: ArrayRecord) -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    with pytest.raises(RuntimeError, match=r"no mods=\[ccfed.flower.customize\(\)\]"):
        strategy([1.0, 1.0]).start(InProcessGrid(app, 2), first)


def test_an_app_without_the_mod_that_fails_without_a_model_is_told_so_too(first: ArrayRecord) -> None:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model = torch.nn.Linear(2, 2)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        raise AssertionError("not reached")

    with pytest.raises(RuntimeError, match=r"no mods=\[ccfed.flower.customize\(\)\]"):
        strategy([1.0, 1.0]).start(InProcessGrid(app, 2), first)


def test_a_client_without_a_number_is_told_so(federation: Federation, first: ArrayRecord) -> None:
    with pytest.raises(RuntimeError, match="partition-id"):
        strategy([1.0]).start(InProcessGrid(App(federation).app, [{"colour": "blue"}]), first)


def test_those_who_are_waited_for_are_named(
    federation: Federation, first: ArrayRecord, caplog: pytest.LogCaptureFixture
) -> None:
    class Late(InProcessGrid):
        looks = 0

        def get_nodes(self) -> list[NodeInfo]:
            self.looks += 1
            return list(super().get_nodes())[: 1 if self.looks == 1 else 3]

    with caplog.at_level(logging.INFO, logger="flwr"):
        strategy([1.0] * 3).start(Late(App(federation).app, 3), first, num_rounds=1)
    assert "waiting for devices: 1 of 3 are there, not yet clients 1, 2" in caplog.messages


def test_absent_clients_do_not_stop_a_run(federation: Federation, first: ArrayRecord) -> None:
    made = strategy([1.0] * 4, min_available_nodes=2)
    made.start(InProcessGrid(App(federation).app, 2), first, num_rounds=2)
    assert [(r.trained, r.silent) for r in made.journal.records] == [(2, 2), (2, 2)]
    assert set(made.failed) == {2, 3}


def test_messages_of_other_strategies_go_through_untouched(federation: Federation, first: ArrayRecord) -> None:
    app = App(federation)
    grid = InProcessGrid(app.app, 1)
    content = RecordDict({"arrays": first, "config": ConfigRecord({"server-round": 1})})
    (reply,) = grid.send_and_receive([Message(content, next(iter(grid.get_node_ids())), "train")])
    assert KEY not in reply.content
    assert reply.content["metrics"]["num-examples"] == int(federation.sizes[0])
    assert not torch.equal(vector(reply.content["arrays"]), vector(first))


# Evaluation and the folder


def test_federated_evaluation_is_the_weighted_mean(
    federation: Federation, first: ArrayRecord, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(federation)

    @app.app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        metrics = MetricRecord({"num-examples": client + 1, "accuracy": client / 10})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    with caplog.at_level(logging.INFO, logger="flwr"):
        result = strategy([1.0] * 3, fraction_evaluate=1.0).start(InProcessGrid(app.app, 3), first, num_rounds=1)
    accuracy, loss = result.evaluate_metrics_clientapp[1]["accuracy"], result.train_metrics_clientapp[1]["train_loss"]
    assert accuracy == pytest.approx((0 + 2 * 0.1 + 3 * 0.2) / 6)
    told = f"[ROUND 1/1] 3 trained, 0 estimated, 0 silent; train_loss {loss:.4g}, accuracy {accuracy:.4g}"
    assert told in caplog.messages


def test_the_folder_is_the_one_of_a_simulated_run(federation: Federation, first: ArrayRecord, tmp_path: Path) -> None:
    from ccfed.simulation import Settings

    folder = tmp_path / "run"
    made = strategy()
    made.start(
        InProcessGrid(App(federation).app, CLIENTS),
        first,
        num_rounds=3,
        evaluate_fn=evaluator(federation),
        folder=folder,
    )
    run = simulated(federation, methods.cc_fedavg(P), 3, seeds=[5])["cc-fedavg"].runs[0]
    names = {"experiment.toml", "federation.npz", "rounds.csv", "participation.npz", "summary.json", "accuracy.png"}
    assert names <= {path.name for path in folder.iterdir()}
    back = read_rounds(folder / "rounds.csv")
    for mine, there in zip(back, run.records, strict=True):
        assert mine.accuracy == pytest.approx(there.accuracy, rel=1e-5)
        assert mine.loss == pytest.approx(there.loss, rel=1e-4)
    settings = Settings.from_toml(folder / "experiment.toml")
    assert (settings.clients, settings.p, settings.seed) == (CLIENTS, tuple(P.tolist()), 5)
    took = np.load(folder / "participation.npz")
    assert took["trained"].sum(1).tolist() == [record.trained for record in run.records]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["accuracy_last"] == pytest.approx(run.accuracy_last)
    assert summary["client_steps"] == run.total("client_steps")
    assert summary["storage_client_bytes"] == run.storage_client_bytes == CLIENTS * MODEL_BYTES
    with pytest.raises(ValueError, match="not empty"):
        strategy().start(InProcessGrid(App(federation).app, CLIENTS), first, folder=folder)


# Any framework


def test_numpy_arrays_of_several_types_and_shapes(tmp_path: Path) -> None:
    app = ClientApp()

    @app.train(mods=[customize(folder=tmp_path)])
    def train(message: Message, context: Context) -> Message:
        model = {name: array.numpy() for name, array in message.content["arrays"].items()}
        step = 1 + context.node_config["partition-id"]
        model = {name: array + np.array(step, dtype=array.dtype) for name, array in model.items()}
        arrays = ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()})
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    first = ArrayRecord(
        {
            "wide": Array(np.zeros((2, 3))),
            "count": Array(np.array([7], dtype=np.int64)),
            "half": Array(np.zeros(2, dtype=np.float16)),
            "alone": Array(np.array(0.5, dtype=np.float32)),
        }
    )
    for keep in ("client", "server"):
        made = strategy([1.0, 0.5], keep=keep, schedule="round-robin")
        arrays = made.start(InProcessGrid(app, 2), first, num_rounds=3).arrays
        assert list(arrays) == list(first)
        assert [str(array.numpy().dtype) for array in arrays.values()] == ["float64", "int64", "float16", "float32"]
        assert arrays["wide"].numpy() == pytest.approx(np.full((2, 3), 4.5))  # each round: the mean of 1 and 2
        assert arrays["half"].numpy() == pytest.approx(4.5)
        assert float(arrays["alone"].numpy()) == pytest.approx(5.0)
        assert arrays["count"].numpy().tolist() == [7]  # a counter is no parameter


def test_a_model_without_parameters_is_refused() -> None:
    whole = ArrayRecord({"count": Array(np.array([7], dtype=np.int64))})
    with pytest.raises(ValueError, match="int64, but at least one array of float16"):
        strategy([1.0]).start(InProcessGrid(ClientApp(), 1), whole)


def test_a_model_of_numbers_that_cannot_be_trained_is_refused() -> None:
    mixed = ArrayRecord({"w": Array(np.zeros(2, dtype=np.float32)), "z": Array(np.zeros(2, dtype=np.complex64))})
    with pytest.raises(ValueError, match="array 'z' of the model is complex64, but only float16"):
        strategy([1.0]).start(InProcessGrid(ClientApp(), 1), mixed)
