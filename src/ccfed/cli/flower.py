"""`ccfed flower`: a new app, its certificates and keys, and going on with a run."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ccfed.cli.failures import Failure, bad_input, disk_trouble


@dataclass(frozen=True)
class New:
    """Writes a complete Flower app (PyTorch, handwritten digits) that trains with CC-FedAvg."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """Folder for the app; it must be empty or not exist."""
    clients: int = 4
    """Number of clients, each a SuperNode."""


@dataclass(frozen=True)
class Keys:
    """Makes a certificate for the SuperLink and a pair of keys for each SuperNode."""

    out: Path = Path("secrets")
    """Folder for certificates and keys; it must be empty or not exist."""
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1")
    """Names and addresses by which devices reach the SuperLink, separated by spaces."""
    nodes: int = 4
    """Number of SuperNodes."""
    days: int = 825
    """How long the certificates are valid."""


@dataclass(frozen=True)
class Resume:
    """Goes on with the run that an app's folder holds, from its last checkpoint."""

    app: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="APP")] = Path(".")
    """Folder of the app, as `ccfed flower new` wrote it."""
    superlink: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SUPERLINK")] = ""
    """Name of the connection in Flower's configuration (default: Flower's own default)."""
    run_config: tuple[str, ...] = ()
    """What the run was started with as `flwr run --run-config`: keep="server", several of them, or a TOML file."""
    federation_config: tuple[str, ...] = ()
    """In a simulation, what the run was started with as `flwr run --federation-config`: num-supernodes=4."""
    stream: bool = True
    """Show the log until the run ends."""


def main(arguments: Sequence[str]) -> int:
    """Runs `ccfed flower ARGUMENTS`."""
    try:
        import ccfed.flower  # noqa: F401
    except ImportError as error:
        raise Failure(str(error)) from error
    commands: dict[str, Callable[..., New | Keys | Resume]] = {"new": New, "keys": Keys, "resume": Resume}
    chosen = tyro.extras.subcommand_cli_from_dict(
        commands, args=list(arguments), prog="ccfed flower", description="Real devices, with Flower."
    )
    with bad_input(), disk_trouble():
        if isinstance(chosen, New):
            return _new(chosen)
        if isinstance(chosen, Keys):
            return _keys(chosen)
        return _resume(chosen)


def _new(options: New) -> int:
    from ccfed.flower.new import new_app

    new_app(options.folder, options.clients)
    print(f"flwr run {options.folder} local --stream --federation-config num-supernodes={options.clients}")
    return 0


def _keys(options: Keys) -> int:
    from ccfed.flower.keys import make_keys

    for path in make_keys(options.out, options.hosts, options.nodes, options.days):
        print(path)
    return 0


def _resume(options: Resume) -> int:
    from ccfed.flower import checkpoint

    try:
        config = tomllib.loads((options.app / "pyproject.toml").read_text())
        settings = config["tool"]["flwr"]["app"]["config"]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise Failure(f"APP is {str(options.app)!r}, which is no Flower app with settings: {error}") from error
    if "folder" not in settings or "resume" not in settings:
        raise Failure("the app's settings need `folder` and `resume`, handed to CCFedAvg.start, so that it can go on")
    overrides = _run_config(options.run_config)
    folder = Path(str(overrides.get("folder", settings["folder"]))).expanduser()
    content = checkpoint.read(folder, lambda sentence: print(sentence, file=sys.stderr))
    if content is None:
        raise Failure(f"{folder} has no checkpoint: start the run with `flwr run`")
    print(f"round {content.facts['round']} of {content.facts['plan']['rounds']} is done: {folder}", file=sys.stderr)
    program = shutil.which("flwr", path=str(Path(sys.executable).parent)) or shutil.which("flwr")
    if program is None:
        raise Failure("Flower's command `flwr` cannot be found: pip install 'ccfed[flower]'", 1)
    command = [program, "run", str(options.app), *([options.superlink] if options.superlink else [])]
    for name, value in (overrides | {"resume": True}).items():
        command += ["--run-config", f"{name}={_toml(value)}"]
    for setting in options.federation_config:
        command += ["--federation-config", setting]
    return subprocess.run([*command, *(["--stream"] if options.stream else [])], check=False).returncode


def _run_config(given: Sequence[str]) -> dict[str, Any]:
    """The settings in `given`, which may be anything that `flwr run --run-config` takes."""
    import click
    from flwr.common.config import parse_config_args

    try:
        overrides = parse_config_args(list(given))
    except click.ClickException as error:
        raise Failure(f"--run-config is {' '.join(given)!r}: {error.message}") from error
    if given and not overrides:
        raise Failure(f'--run-config is {" ".join(given)!r}, but it must be settings such as keep="server"')
    return overrides


def _toml(value: Any) -> str:
    """A value as `flwr run --run-config` reads it: in a string, the one or the other kind of quotes is no content."""
    return f"'{value}'" if isinstance(value, str) and '"' in value else json.dumps(value)
