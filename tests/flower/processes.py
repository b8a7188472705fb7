"""A real deployment on this machine: one SuperLink, some SuperNodes, all processes of ours and ended by us."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

BIN = Path(sys.executable).parent
REVIVE_EVERY = 6.0


def free_port() -> int:
    """A port that the system says is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Deployment:
    """Processes in groups of their own; leaving the `with` block ends every one of them, whatever happened."""

    def __init__(self, folder: Path, devices: Path, secrets: Path | None = None) -> None:
        self.folder, self.secrets = folder, secrets
        self.port = free_port()
        self.link: subprocess.Popen[bytes] | None = None
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._all: list[subprocess.Popen[bytes]] = []
        self._logs = 0
        self._started: dict[int, float] = {}
        home = folder / "flwr"
        home.mkdir(parents=True)
        self.env = {
            **os.environ,
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "CCFED_DEVICES": str(devices),
            "OMP_NUM_THREADS": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }
        trust = "insecure = true" if secrets is None else f'root-certificates = "{secrets / "ca.pem"}"'
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n{trust}\n'
        )

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            print(self.logs())
        for process in reversed(self._all):
            self.kill(process)

    def start_link(self, simulation: bool = False) -> None:
        """Starts the SuperLink, or one for simulations, and waits until it answers."""
        security = ["--insecure"]
        if self.secrets is not None:
            security = [
                *("--ssl-ca-certfile", str(self.secrets / "ca.pem")),
                *("--ssl-certfile", str(self.secrets / "server.pem")),
                *("--ssl-keyfile", str(self.secrets / "server.key")),
                "--enable-supernode-auth",
            ]
        command = ["flower-superlink", *security, "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--database", str(self.folder / "link.db"), "--disable-runtime-dependency-installation"]
        command += ["--simulation"] if simulation else []
        self.link = self._start(command, "link")
        self.wait_for(self._link_listens, "the SuperLink")

    def start_node(self, client: int, clients: int) -> None:
        """Starts the SuperNode of a client; it connects when it can."""
        security = ["--insecure"]
        if self.secrets is not None:
            security = [
                *("--root-certificates", str(self.secrets / "ca.pem")),
                *("--auth-supernode-private-key", str(self.secrets / f"node-{client}.key")),
            ]
        command = ["flower-supernode", *security, "--superlink", f"127.0.0.1:{self.port}"]
        command += ["--node-config", f"partition-id={client} num-partitions={clients}"]
        command += ["--host", "127.0.0.1", "--port", str(free_port())]
        self._started[client] = time.monotonic()
        self.nodes[client] = self._start(command, f"node-{client}")

    def register_nodes(self, clients: Iterable[int]) -> None:
        """Tells the SuperLink the public keys of these clients' SuperNodes."""
        assert self.secrets is not None
        for client in clients:
            self.flwr("supernode", "register", str(self.secrets / f"node-{client}.pub"), "here")

    def revive_nodes(self, clients: int) -> None:
        """Starts SuperNodes that have ended once more, as a supervisor does: the SuperLink refuses a node with a known
        key for as long as it takes it for connected."""
        for client, process in list(self.nodes.items()):
            if process.poll() is not None and time.monotonic() - self._started[client] > REVIVE_EVERY:
                self.start_node(client, clients)

    def flwr(self, *arguments: str) -> str:
        """Runs `flwr ARGUMENTS` to its end."""
        return self.run("flwr", *arguments)

    def run(self, *command: str) -> str:
        """Runs a command to its end."""
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float = 240.0) -> None:
        """Returns when `condition` holds; fails, naming `what`, if it does not within a long time."""
        ends = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > ends:
                raise TimeoutError(f"waited {seconds:.0f} seconds for {what}")
            time.sleep(0.05)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL to a process and all that it started, as when a machine loses power."""
        with suppress(psutil.NoSuchProcess):
            family = [psutil.Process(process.pid)]
            family += family[0].children(recursive=True)
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def logs(self) -> str:
        """The last lines of every process, for a failing test."""
        parts = []
        for path in sorted(self.folder.glob("*.log")):
            parts.append(f"--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-25:]))
        return "\n".join(parts)

    def _start(self, command: list[str], name: str) -> subprocess.Popen[bytes]:
        self._logs += 1
        with (self.folder / f"{self._logs:02d}-{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self.env, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        self._all.append(process)
        return process

    def _link_listens(self) -> bool:
        assert self.link is not None
        if self.link.poll() is not None:
            raise RuntimeError(f"the SuperLink ended\n{self.logs()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
