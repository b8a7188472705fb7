"""One SuperLink and four SuperNodes as processes: what is killed goes on, and the final model is as if nothing was."""

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from processes import Deployment

from ccfed import budgets
from ccfed.cli import main
from ccfed.files import load
from ccfed.flower import CCFedAvg, InProcessGrid
from ccfed.records import RoundRecord, read_rounds

CLIENTS = 4
KEEP = "mixed"

# In the test's copy of the app, training stops at a gate if there is one for this client and round.
GATE = """
import os
import time
from pathlib import Path


def pass_gate(client: int, server_round: int) -> None:
    folder = Path(os.environ["CCFED_DEVICES"])
    gate = folder / f"gate-{client}-{server_round}"
    if gate.exists():
        (folder / f"waits-{client}-{server_round}").touch()
        while gate.exists():
            time.sleep(0.05)
"""


def make_app(folder: Path, rounds: int) -> Path:
    """The app that `ccfed flower new` writes, with gates, fewer rounds and everybody's turns known beforehand."""
    assert main(["flower", "new", str(folder), "--clients", str(CLIENTS)]) == 0
    package = next(path for path in folder.iterdir() if (path / "__init__.py").exists())
    task = package / "task.py"
    task.write_text(task.read_text() + GATE)
    client_app = package / "client_app.py"
    text = client_app.read_text().replace("import Net, samples_of, train", "import Net, pass_gate, samples_of, train")
    call = "    loss = train("
    assert call in text
    gate = '    pass_gate(client, int(message.content["config"]["server-round"]))\n'
    client_app.write_text(text.replace(call, gate + call))
    settings = folder / "pyproject.toml"
    text = settings.read_text()
    for name, value in (("num-server-rounds", rounds), ("schedule", '"round-robin"'), ("keep", f'"{KEEP}"')):
        lines = [f"{name} = {value}" if line.startswith(f"{name} = ") else line for line in text.splitlines()]
        text = "\n".join(lines) + "\n"
    settings.write_text(text)
    return folder


def undisturbed(app: Path, rounds: int, devices: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, torch.Tensor]:
    """The final model of the same app in this process, where nothing is killed."""
    monkeypatch.setenv("CCFED_DEVICES", str(devices))
    monkeypatch.syspath_prepend(str(app))
    package = next(path.name for path in app.iterdir() if (path / "__init__.py").exists())
    try:
        client_app = importlib.import_module(f"{package}.client_app")
        task = importlib.import_module(f"{package}.task")
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            del sys.modules[name]
    settings = {"clients": CLIENTS, "local-steps": 20, "batch-size": 32}
    grid = InProcessGrid(client_app.app, CLIENTS, settings)
    p = budgets.levels(CLIENTS, beta=4)
    strategy = CCFedAvg(p, keep=KEEP, schedule="round-robin", steps=20, fraction_evaluate=0)  # type: ignore[arg-type]
    torch.manual_seed(0)
    first = ArrayRecord(task.Net().state_dict())
    config = ConfigRecord({"lr": 0.1})
    return dict(strategy.start(grid, first, num_rounds=rounds, train_config=config).arrays.to_torch_state_dict())


def rounds_of(run: Path) -> list[RoundRecord]:
    table = run / "rounds.csv"
    return read_rounds(table) if table.exists() else []


def is_finished(run: Path) -> bool:
    """Whether the server has written its last word, and that the run is over."""
    summary = run / "summary.json"
    try:
        return bool(summary.exists() and json.loads(summary.read_text())["finished"])
    except json.JSONDecodeError:  # it is being written just now
        return False


@pytest.mark.slow
def test_a_killed_node_and_a_killed_server_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(tmp_path / "digits", rounds=5)
    run, devices = app / "runs" / "first", tmp_path / "devices"
    devices.mkdir()
    for gate in ("gate-0-4", "gate-1-5"):
        (devices / gate).touch()
    with Deployment(tmp_path / "processes", devices) as processes:
        processes.start_link()
        for client in range(CLIENTS):
            processes.start_node(client, CLIENTS)
        processes.flwr("run", str(app), "here")
        processes.wait_for(lambda: len(rounds_of(run)) == 3, "three rounds")

        # The device of client 0 loses power while it trains in the fourth round, and comes back.
        processes.wait_for((devices / "waits-0-4").exists, "client 0 to train in round 4")
        processes.kill(processes.nodes[0])
        (devices / "gate-0-4").unlink()
        processes.start_node(0, CLIENTS)
        processes.wait_for(lambda: len(rounds_of(run)) == 4, "the fourth round")

        # The server loses power in the fifth.
        processes.wait_for((devices / "waits-1-5").exists, "client 1 to train in round 5")
        assert processes.link is not None
        processes.kill(processes.link)
        (devices / "gate-1-5").unlink()
        processes.start_link()
        processes.run("ccfed", "flower", "resume", str(app), "here", "--no-stream")
        processes.wait_for(lambda: is_finished(run), "the end of the run")
    check_as_if_nothing_was(app, 5, tmp_path, monkeypatch)


@pytest.mark.slow
def test_with_tls_and_keys_a_power_cut_for_server_and_device_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(tmp_path / "digits", rounds=4)
    run, devices, secrets = app / "runs" / "first", tmp_path / "devices", tmp_path / "secrets"
    assert main(["flower", "keys", "--out", str(secrets), "--nodes", str(CLIENTS)]) == 0
    devices.mkdir()
    (devices / "gate-0-4").touch()
    with Deployment(tmp_path / "processes", devices, secrets) as processes:
        processes.start_link()
        processes.register_nodes(range(CLIENTS))
        for client in range(CLIENTS):
            processes.start_node(client, CLIENTS)
        processes.flwr("run", str(app), "here")
        processes.wait_for(lambda: len(rounds_of(run)) == 3, "three rounds")
        processes.wait_for((devices / "waits-0-4").exists, "client 0 to train in round 4")
        assert processes.link is not None
        processes.kill(processes.nodes[0])
        processes.kill(processes.link)
        (devices / "gate-0-4").unlink()
        processes.start_link()
        processes.run("ccfed", "flower", "resume", str(app), "here", "--no-stream")

        def over() -> bool:
            processes.revive_nodes(CLIENTS)
            return is_finished(run)

        processes.wait_for(over, "the end of the run")
    check_as_if_nothing_was(app, 4, tmp_path, monkeypatch)


def check_as_if_nothing_was(app: Path, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = app / "runs" / "first"
    records = rounds_of(run)
    assert [record.round for record in records] == list(range(rounds))
    assert [record.trained + record.estimated for record in records] == [CLIENTS] * rounds
    final = load(run / "checkpoint.safetensors").tensors["model"]
    expected = undisturbed(app, rounds, tmp_path / "undisturbed", monkeypatch)
    assert torch.equal(final, torch.cat([tensor.flatten() for tensor in expected.values()]))
