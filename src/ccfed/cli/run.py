"""`ccfed run`: one federation."""

import datetime
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import tyro

from ccfed.cli.failures import Failure, bad_input, disk_trouble
from ccfed.simulation.settings import Settings

if TYPE_CHECKING:
    from ccfed.simulation import Runs

T = TypeVar("T")


@dataclass(frozen=True)
class Output:
    """Where results go."""

    out: Path | None = None
    """Folder for the results (default: runs/DATE-TIME-METHOD)."""
    resume: bool = False
    """Go on with the run that --out holds."""
    config: Path | None = None
    """TOML file with settings, such as a run's experiment.toml; options on the command line win over it."""


@dataclass(frozen=True)
class RunOptions:
    """Simulates one federation and leaves its results in a folder, whose path is the last line on stdout."""

    settings: Annotated[Settings, tyro.conf.arg(name="")]
    output: Annotated[Output, tyro.conf.arg(name="")]


def main(arguments: Sequence[str]) -> int:
    """Runs `ccfed run ARGUMENTS`."""
    options = parse(RunOptions, arguments, "ccfed run")
    s = options.settings
    runs, base = simulate_into(s, (s.method,), (s.seed,), options.output, flat=True)
    print(runs.table())
    print(base)
    return 0


def parse(kind: type[T], arguments: Sequence[str], program: str) -> T:
    """The options in `arguments`, on top of those in the file that --config names."""
    defaults = Settings()
    config = _config_of(arguments)
    if config is not None:
        with bad_input():
            defaults = Settings.from_toml(config)
    default = kind(settings=defaults, output=Output())  # type: ignore[call-arg]
    return tyro.cli(kind, args=list(arguments), prog=program, default=default)


def _config_of(arguments: Sequence[str]) -> Path | None:
    for i, word in enumerate(arguments):
        if word == "--config" and i + 1 < len(arguments):
            return Path(arguments[i + 1])
        if word.startswith("--config="):
            return Path(word.partition("=")[2])
    return None


def say(sentence: str) -> None:
    """Prints to stderr."""
    print(sentence, file=sys.stderr, flush=True)


def simulate_into(
    settings: Settings, methods: tuple[str, ...], seeds: tuple[int, ...], output: Output, flat: bool
) -> tuple["Runs", Path]:
    """Simulates and leaves the results in a folder: itself a run's folder if `flat`, else with one inside for each
    run."""
    from ccfed.simulation import Diverged, experiments_of, run
    from ccfed.simulation.folder import RunFolders, holds_a_run
    from ccfed.simulation.progress import ShowProgress
    from ccfed.simulation.simulate import find_device, run_folder_name

    what = methods[0] if flat else "compare"
    base = output.out or Path("runs") / f"{datetime.datetime.now():%Y-%m-%d-%H%M%S}-{what}"
    if holds_a_run(base) and not output.resume:
        raise Failure(f"--out is {str(base)!r}, which is not empty: choose another folder, or --resume the run in it")
    with bad_input():
        settings.check()
        find_device(settings.device)
        experiments = experiments_of(settings, methods, seeds)
        for experiment in experiments:
            experiment.make_network()
    folders = {(e.name, e.seed): base if flat else run_folder_name(base, e.name, e.seed) for e in experiments}
    with disk_trouble():
        try:
            runs = run(
                experiments,
                device=settings.device,
                engine=settings.engine,
                precision=settings.precision,
                observers=[RunFolders(folders), ShowProgress()],
                say=say,
            )
        except Diverged as trouble:
            raise Failure(f"{trouble}; the last good state is in {base}", 1) from trouble
        return runs, base
