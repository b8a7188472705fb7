"""`ccfed flower`: what it writes runs, and what cannot be is told in one sentence."""

import importlib
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_public_key
from cryptography.hazmat.primitives.serialization.ssh import load_ssh_private_key
from flwr.app import Context, RecordDict
from processes import Deployment
from test_deployment import is_finished, rounds_of

from ccfed.cli import main
from ccfed.files import Sealed
from ccfed.flower import InProcessGrid, checkpoint
from ccfed.records import read_rounds


@pytest.mark.parametrize("name", ["digits", "My first app!", "4you"])
def test_a_new_app_runs_and_resumes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / name
    assert main(["flower", "new", str(folder), "--clients", "3"]) == 0
    settings = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    config = settings["config"] | {"num-server-rounds": 3}
    monkeypatch.syspath_prepend(str(folder))
    package = settings["components"]["serverapp"].partition(".")[0]
    assert package.isidentifier()
    try:
        client_app = importlib.import_module(f"{package}.client_app").app
        server_app = importlib.import_module(f"{package}.server_app").app
    finally:
        for module in [module for module in sys.modules if module.split(".")[0] == package]:
            del sys.modules[module]

    def run(**changes: object) -> None:
        grid = InProcessGrid(client_app, 3, config)
        server_app(grid, Context(1, 1, {}, RecordDict(), {**config, **changes}))

    run()
    records = read_rounds(folder / "runs" / "first" / "rounds.csv")
    assert [record.selected for record in records] == [3] * 3
    assert records[-1].accuracy > 50
    run(**{"resume": True, "num-server-rounds": 4})
    assert len(read_rounds(folder / "runs" / "first" / "rounds.csv")) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new", "."], "not empty"),
        (["new", "fresh", "--clients", "0"], "--clients is 0"),
        (["keys", "--out", "."], "not empty"),
        (["keys", "--out", "fresh", "--nodes", "-1"], "--nodes is -1"),
        (["keys", "--out", "fresh", "--days", "0"], "--days is 0"),
        (["keys", "--out", "fresh", "--days", "1000000000"], "--days is 1000000000"),
        (["keys", "--out", "fresh", "--hosts", "https://flower.example.org:8000"], "--hosts has 'https://"),
        (["keys", "--out", "fresh", "--hosts", "blümchen.example.org"], "--hosts has 'blümchen"),
        (["resume", "nowhere"], "no Flower app"),
        (["resume", "app"], "no checkpoint"),
        (["resume", "app", "--run-config", "beta"], "--run-config is 'beta'"),
        (["resume", "app", "--run-config", "keep=server"], "--run-config is 'keep=server'"),
    ],
)
def test_bad_input_is_told_in_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").touch()
    main(["flower", "new", "app"])
    capsys.readouterr()
    assert main(["flower", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("ccfed flower: ")
    assert message in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    "given", [["beta=2.0", 'folder="runs/second"'], ['beta=2.0 folder="runs/second"'], ["changed.toml"]]
)
def test_resume_takes_settings_as_flower_does(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["flower", "new", "app"]) == 0
    Path("changed.toml").write_text('beta = 2.0\nfolder = "runs/second"\n')
    looked_at, started = [], []

    def read(folder: Path, say: object) -> Sealed:
        looked_at.append(folder)
        return Sealed({}, {"round": 1, "plan": {"rounds": 3}}, "", folder)

    def start(command: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        started.append(command[1:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(checkpoint, "read", read)
    monkeypatch.setattr(subprocess, "run", start)
    simulated = ["--federation-config", "num-supernodes=4"]
    assert main(["flower", "resume", "app", "here", "--run-config", *given, *simulated]) == 0
    assert looked_at == [Path("runs/second")]
    settings = ["beta=2.0", 'folder="runs/second"', "resume=true"]
    options = [word for setting in settings for word in ("--run-config", setting)]
    assert started == [["run", "app", "here", *options, *simulated, "--stream"]]


def test_flower_installs_nothing_for_a_new_app(tmp_path: Path) -> None:
    assert main(["flower", "new", str(tmp_path / "app")]) == 0
    assert tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["project"]["dependencies"] == []


def test_keys_are_private_and_fit_their_certificates(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    hosts = [f"{'a-very-long-name-' * 3}of-a-load-balancer.example.org", "10.0.0.7"]
    assert main(["flower", "keys", "--out", str(folder), "--hosts", *hosts, "--nodes", "2"]) == 0
    ca, server = (x509.load_pem_x509_certificate((folder / f"{name}.pem").read_bytes()) for name in ("ca", "server"))
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == hosts[:1]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == hosts[1:]
    key = load_pem_private_key((folder / "server.key").read_bytes(), None)
    assert key.public_key() == server.public_key()
    for node in range(2):
        private = load_ssh_private_key((folder / f"node-{node}.key").read_bytes(), None)
        assert private.public_key() == load_ssh_public_key((folder / f"node-{node}.pub").read_bytes())
    for secret in folder.glob("*.key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.mark.slow
def test_a_new_app_runs_in_flowers_simulation(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Flower's simulation needs ray: pip install 'flwr[simulation]'")
    app = tmp_path / "digits"
    assert main(["flower", "new", str(app)]) == 0
    run = app / "runs" / "first"
    with Deployment(tmp_path / "processes", tmp_path / "devices") as processes:
        processes.start_link(simulation=True)
        federation = "num-supernodes=4 client-resources-num-cpus=1"
        processes.flwr(
            "run", str(app), "here", "--federation-config", federation, "--run-config", "num-server-rounds=3"
        )
        processes.wait_for(lambda: is_finished(run), "the end of the run")
        longer = ["--run-config", "num-server-rounds=4", "--federation-config", federation, "--no-stream"]
        processes.run("ccfed", "flower", "resume", str(app), "here", *longer)
        processes.wait_for(lambda: len(rounds_of(run)) == 4, "one round more")
    assert [record.selected for record in rounds_of(run)] == [4] * 4
