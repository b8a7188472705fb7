"""`ccfed run`: one federation."""

import datetime
import json
import tomllib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, TypeVar

import tyro

from ccfed.cli.failures import Failure, bad_input, disk_trouble, memory_trouble
from ccfed.cli.options import read_options
from ccfed.cli.terminal import show, tell
from ccfed.files.whole import write_whole
from ccfed.simulation.settings import Settings

if TYPE_CHECKING:
    from ccfed.simulation import Runs

T = TypeVar("T")

NOTE = {"run": "experiment.toml", "compare": "compare.toml"}
"""The file in which each command keeps its options, for --resume."""


@dataclass(frozen=True)
class Output:
    """Where results go."""

    out: Path | None = None
    """Folder for the results (default: runs/DATE-TIME-METHOD)."""
    resume: bool = False
    """Go on with the run that --out holds, with its settings, to the same result as if it had never stopped."""
    checkpoint_every: float = 10.0
    """Seconds between checkpoints (0: after every round)."""
    tensorboard: bool = False
    """Also write event files for TensorBoard into the folder of each run."""
    config: Path | None = None
    """TOML file with settings, such as a run's experiment.toml; options on the command line win over it."""


@dataclass(frozen=True)
class RunOptions:
    """Simulates one federation and leaves its results in a folder, whose path is the last line on stdout."""

    settings: Annotated[Settings, tyro.conf.arg(name="")]
    output: Annotated[Output, tyro.conf.arg(name="")]


def main(arguments: Sequence[str]) -> int:
    """Runs `ccfed run ARGUMENTS`."""
    options = parse(RunOptions, arguments, "ccfed run", "experiment.toml")
    s = options.settings
    runs, base = simulate_into(s, (s.method,), (s.seed,), options.output, flat=True)
    show(runs.table())
    print(base)
    return 0


def parse(kind: type[T], arguments: Sequence[str], program: str, file: str, **lists: type) -> T:
    """The options in `arguments`, on top of those in the file that --config names, or with --resume in the `file` of
    the run's folder; `lists` are the options of `kind` which may stand there besides settings, with their items'
    types."""
    defaults, others = Settings(), {}
    out, config = _path_after("--out", arguments), _path_after("--config", arguments)
    if "--resume" in arguments and config is None and out is not None and (out / file).exists():
        config = out / file
    if config is not None:
        with bad_input():
            defaults = Settings.from_toml(config, besides=lists)
            others = {name: _list_in(config, name, lists[name]) for name in lists}
    others = {name: value for name, value in others.items() if value is not None}
    default = kind(settings=defaults, output=Output(), **others)  # type: ignore[call-arg]
    return read_options(kind, arguments, program, default)


def _path_after(option: str, arguments: Sequence[str]) -> Path | None:
    for i, word in enumerate(arguments):
        if word == option and i + 1 < len(arguments):
            return Path(arguments[i + 1])
        if word.startswith(f"{option}="):
            return Path(word.partition("=")[2])
    return None


def _list_in(config: Path, name: str, item: type) -> tuple[object, ...] | None:
    value = tomllib.loads(config.read_text(encoding="utf-8")).get(name)
    if value is not None and not (isinstance(value, list) and all(type(each) is item for each in value)):
        raise ValueError(f"{name} in --config is {value!r}, but it must be a list of type {item.__name__}")
    return None if value is None else tuple(value)


def simulate_into(
    settings: Settings,
    methods: tuple[str, ...],
    seeds: tuple[int, ...],
    output: Output,
    flat: bool,
    ray: str | None = None,
) -> tuple["Runs", Path]:
    """Simulates and leaves the results in a folder: itself a run's folder if `flat`, else with one inside for each
    run. With `ray` the work is done on the Ray cluster at that address."""
    from ccfed.cli.stopping import Stopping
    from ccfed.simulation import Diverged, Observer, TrainingFailed, experiments_of, run
    from ccfed.simulation.checkpoint import Refused
    from ccfed.simulation.checkpoints import Checkpoints
    from ccfed.simulation.elsewhere import run_elsewhere
    from ccfed.simulation.folder import RunFolders, holds_a_run
    from ccfed.simulation.memory import STORED, space_for
    from ccfed.simulation.progress import ShowProgress
    from ccfed.simulation.simulate import find_device, run_folder_name
    from ccfed.simulation.spread import Lost, NoCluster
    from ccfed.training.choose import CannotTrain

    what, command = (methods[0], "run") if flat else ("compare", "compare")
    base = output.out or Path("runs") / f"{datetime.datetime.now():%Y-%m-%d-%H%M%S}-{what}"
    with disk_trouble():
        if output.resume and output.out is None:
            raise Failure("--resume needs --out: the folder of the run that is to go on")
        if output.resume and (other := _other_command(base, command)):
            raise Failure(f"--resume: {base} holds a run that `{other}` goes on with")
        if base.exists() and not base.is_dir():
            raise Failure(f"--out is {str(base)!r}, which is a file: name a folder")
        if holds_a_run(base) and not output.resume:
            raise Failure(
                f"--out is {str(base)!r}, which is not empty: choose another folder, or --resume the run in it"
            )
    if not output.checkpoint_every >= 0:
        raise Failure(f"--checkpoint-every is {output.checkpoint_every:g}, but it must be at least 0")
    with bad_input(), memory_trouble():
        settings.check()
        device = find_device("cpu" if ray else settings.device)  # a cluster's workers have devices of their own
        experiments = experiments_of(settings, methods, seeds)
        for experiment in experiments:
            experiment.make_network()
    for sentence in settings.unused(methods):
        tell(sentence)
    if settings.budgets == "energy" and any(each.method.schedule.name == "ad-hoc" for each in experiments):
        tell("schedule ad-hoc keeps to an energy plan on average, not device by device: --schedule round-robin does")
    folders = {(e.name, e.seed): base if flat else run_folder_name(base, e.name, e.seed) for e in experiments}
    watchers: list[Observer] = [RunFolders(folders), ShowProgress()]
    if output.tensorboard:
        from ccfed.simulation.tensorboard import TensorBoard

        with bad_input():
            watchers.append(TensorBoard(folders))
    note = base / NOTE[command]
    advice = f"what is finished is in {base}" if ray else f"the last good state is in {base}"
    advice += ", and --resume goes on from there"
    with disk_trouble(advice if output.resume else ""):
        # First of all, so that also a run which is killed at once goes on with its own options.
        fresh, before = not holds_a_run(base), note.read_bytes() if note.exists() else None
        lists = "" if flat else f"methods = {json.dumps(methods)}\nseeds = {json.dumps(seeds)}\n"
        write_whole(note, (settings.to_toml() + lists).encode())
    with disk_trouble(advice), memory_trouble(advice), ExitStack() as entered:
        try:
            if ray:
                how = {"resume": output.resume, "tensorboard": output.tensorboard}
                return run_elsewhere(experiments, folders, settings, ray, say=tell, **how), base
            stopping = entered.enter_context(Stopping())
            saves = Checkpoints(folders, resume=output.resume, seconds=output.checkpoint_every, say=tell)
            runs = run(
                experiments,
                device=settings.device,
                engine=settings.engine,
                precision=settings.precision,
                observers=[saves, *watchers, stopping],
                space=space_for(experiments, settings.history_memory, device, base, tell),
                store_dtype=STORED[settings.history_dtype],
                say=tell,
            )
        except (Refused, NoCluster, CannotTrain) as trouble:
            if before is not None:
                write_whole(note, before)  # options that were refused are not those of the run
            if fresh and not isinstance(trouble, Refused):  # as what is refused may be another process's folder
                rmtree(base)  # nothing was begun: the same folder can be named again
            raise Failure(str(trouble)) from trouble
        except Lost as trouble:
            raise Failure(f"{trouble}; {advice}", 1) from trouble
        except (Diverged, TrainingFailed) as trouble:
            raise Failure(f"{trouble}; {advice.partition(',')[0]}", 1) from trouble
        except KeyboardInterrupt:  # the second Ctrl-C, or the first one while others do the work
            raise Failure(f"interrupted; {advice}", 130) from None
    if stopping.code is not None and not all(len(run.records) == settings.rounds for run in runs.all):
        raise Failure(f"interrupted; {advice}", stopping.code)
    return runs, base


def _other_command(base: Path, command: str) -> str | None:
    """What goes on with the run that `base` holds, if that is not `ccfed` COMMAND."""
    if (base / "devices.csv").exists():
        return "ccfed flower resume"
    others = (name for name, file in NOTE.items() if name != command and (base / file).exists())
    return next((f"ccfed {name} --resume" for name in others), None)
