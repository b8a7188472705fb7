"""`ccfed reproduce`: tables and figures of the paper, run and drawn beside the paper's own numbers."""

import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from ccfed.cli.failures import Failure, bad_input, disk_trouble
from ccfed.cli.options import read_options
from ccfed.cli.terminal import tell
from ccfed.simulation.settings import known, known_device
from ccfed.training.choose import ENGINES
from ccfed.training.engine import Precision

if TYPE_CHECKING:
    from ccfed.data import Dataset
    from ccfed.paper.campaign import Deadline
    from ccfed.paper.machine import Machine
    from ccfed.paper.plan import Cut, Plan
    from ccfed.paper.store import Store

ASIDE = ("--out", "--limit", "--note", "--report", "--data-dir", "--ray")
"""Options that do not belong into a command that others shall repeat."""


@dataclass(frozen=True)
class ReproduceOptions:
    """Runs what is behind tables and figures of the CC-FedAvg paper, and draws them beside the paper's own numbers.

    Leaves NAME.csv, NAME.md, NAME.png and NAME.pdf in --out. Finished runs are kept there (cells.jsonl) and never made
    again; a call that was stopped is gone on with by the same call.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME...")] = ()
    """Tables and figures by name (--list shows them), or tables, all, all-but-resnet."""
    list: bool = False
    """Only show names, number of runs, client-steps and estimated time on this machine."""
    seeds: tuple[int, ...] = ()
    """Run these seeds only (default: one for most, five for the device-fmnist tables)."""
    rounds: int | None = None
    """At most so many rounds; the results go to NAME-cut.* and are not compared with the paper."""
    steps: int | None = None
    """At most so many local steps a round; see --rounds."""
    methods: tuple[str, ...] = ()
    """Run these methods only, such as fedavg cc-fedavg."""
    settings: tuple[str, ...] = ()
    """Run only what has NAME=VALUE, such as iid=0.1 schedule=ad-hoc; of one name any of the values given."""
    out: Path = Path("results")
    """Folder for the finished runs, tables and figures."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu or cuda."""
    engine: str = "auto"
    """How clients are trained, as in `ccfed run`."""
    precision: Precision = "float32"
    """How exactly a GPU multiplies matrices: tf32 and bfloat16 are faster, with slightly different results."""
    data_dir: Path | None = None
    """Folder with the data sets' original files (default: $CCFED_DATA, then the usual places)."""
    limit: float | None = None
    """Stop after so many minutes, at the end of a round; the same call goes on from there."""
    at_once: int | None = None
    """Runs in a batch (default: as many as keep the machine busy and fit into its memory)."""
    ray: str | None = None
    """Address of a Ray cluster (HOST:PORT, or auto for this machine's) over which the runs are spread."""
    run_only: bool = False
    """Draw nothing: a later call with --draw-only does."""
    draw_only: bool = False
    """Run nothing: draw from the runs that are finished."""
    report: Path | None = None
    """Also write what became of each of the paper's claims into this file, such as docs/results.md."""
    note: str | None = None
    """Words to keep beside each run, such as the commit, where the source is no checkout of git."""


def main(arguments: Sequence[str]) -> int:
    """Runs `ccfed reproduce ARGUMENTS`."""
    options = read_options(ReproduceOptions, arguments, "ccfed reproduce")
    from ccfed.paper.campaign import Deadline, SomeFailed
    from ccfed.paper.catalogue import PLANS, chosen
    from ccfed.paper.machine import Machine
    from ccfed.paper.plan import Cut, check_cut
    from ccfed.paper.store import Store

    with bad_input():
        _check(options)
        seeds = tuple(dict.fromkeys(options.seeds))
        cut = Cut(seeds, options.rounds, options.steps, options.methods, options.settings)
        plans = chosen(options.names or tuple(PLANS))
        check_cut(plans, cut)
        shown = [drawn_plan(plan, cut) for plan in plans]
        cells = cells_to_run(plans, cut, options.names)
    with disk_trouble():
        store = Store(options.out)
        machine = Machine(options.device, options.engine, options.precision, _made(options, arguments))
        if options.list:
            with bad_input():
                print(_listing(plans, cut, store, machine))
            return 0
        code, failed, before = 0, None, len(store)
        deadline = Deadline()
        if not options.draw_only:
            if options.limit is not None:
                deadline.at = time.monotonic() + 60 * options.limit
            with stopped_by_signals(deadline) as caught:
                try:
                    _run(options, cells, store, machine, deadline)
                except SomeFailed as trouble:  # what could be run is drawn all the same
                    failed = trouble
            code = 128 + caught[0] if caught else 0
        in_vain = failed is not None and failed.bad_input and len(store) == before
        if not (options.run_only or code or in_vain):
            _draw(shown, cut, store, options.out)
        if options.report is not None:
            from ccfed.paper.report import write_report

            write_report(store, options.report)
            print(options.report)
    if failed is not None:
        raise Failure(str(failed), 2 if failed.bad_input else 1)
    left = len(store.missing(cells))
    if left and not options.draw_only:
        tell(f"{left} of {len(cells)} runs are left: the same call goes on with them")
    return code


def _check(options: ReproduceOptions) -> None:
    known_device(options.device)
    known("--engine", options.engine, ("auto", *ENGINES))
    if not options.names and not options.list:
        raise ValueError("NAME is missing: give one or several of those that --list shows, or all-but-resnet")
    if options.run_only and options.draw_only:
        raise ValueError("--run-only and --draw-only are both given, but one leaves nothing for the other")
    for name in ("rounds", "steps", "at_once"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} is {value}, but it must be at least 1")
    if options.limit is not None and not options.limit > 0:
        raise ValueError(f"--limit is {options.limit:g}, but it must be more than 0 minutes")
    if options.data_dir is not None and not options.data_dir.is_dir():
        raise ValueError(f"--data-dir is {str(options.data_dir)!r}, but that is no folder")


def cells_to_run(plans: "Sequence[Plan]", cut: "Cut", names: Sequence[str]) -> tuple[Any, ...]:
    """The runs that are asked for, each once."""
    from ccfed.paper.catalogue import LARGE_MODEL, without_large_models
    from ccfed.paper.plan import cut_down, unique

    cells = unique(cell for plan in plans for cell in cut_down(plan, cut).cells)
    if without_large_models(names):
        cells = tuple(cell for cell in cells if cell.settings.model != LARGE_MODEL)
    if not cells and any(plan.cells for plan in plans):
        raise ValueError("--methods, --settings or --seeds leave nothing to run: --list shows what there is")
    return cells


def drawn_plan(plan: "Plan", cut: "Cut") -> "Plan":
    """What is drawn: the whole plan, with what the store has of it; if runs were shortened or have seeds of their own,
    only those."""
    from ccfed.paper.plan import cut_down

    whole = {seed for entry in plan.entries for seed in entry.seeds}
    return cut_down(plan, cut) if cut.shortens or not set(cut.seeds) <= whole else plan


def _listing(plans: "Sequence[Plan]", cut: "Cut", store: "Store", machine: "Machine") -> str:
    from ccfed.paper.plan import cut_down
    from ccfed.paper.summary import listing

    return listing([cut_down(plan, cut) for plan in plans], store, machine, tell)


def _run(
    options: ReproduceOptions, cells: tuple[Any, ...], store: "Store", machine: "Machine", deadline: "Deadline"
) -> None:
    from ccfed import data
    from ccfed.paper.campaign import run_missing
    from ccfed.paper.elsewhere import run_missing_elsewhere
    from ccfed.simulation.progress import ShowProgress
    from ccfed.simulation.spread import Lost

    def load(name: str) -> "Dataset":
        return data.load(name, options.data_dir)

    try:
        if options.ray is not None:
            run_missing_elsewhere(cells, store, machine, options.ray, load=load, deadline=deadline, say=tell)
            return
        run_missing(
            cells,
            store,
            machine,
            load=load,
            deadline=deadline,
            observers=[ShowProgress()],
            say=tell,
            at_once=options.at_once,
        )
    except ValueError as trouble:
        raise Failure(str(trouble)) from trouble
    except Lost as trouble:
        raise Failure(str(trouble), 1) from trouble


def _draw(plans: "Sequence[Plan]", cut: "Cut", store: "Store", out: Path) -> None:
    from ccfed.paper.outputs import write

    for plan in plans:
        if plan.entries or plan.csv_rows:
            name = f"{plan.name}-cut" if cut.shortens else plan.name
            for path in write(plan, store, out, name):
                print(path)


@contextmanager
def stopped_by_signals(deadline: "Deadline") -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM stop the runs at the end of a round, with everything saved; a second one stops at once. The
    list holds the signal that came, if one did."""
    caught: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)
        deadline.asked = True
        tell("stopping at the end of this round, to go on from there later (once more: at once)")

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _made(options: ReproduceOptions, arguments: Sequence[str]) -> dict[str, Any]:
    """What is noted beside each run: version, commit if there is a checkout, command, and the user's note."""
    import ccfed

    made: dict[str, Any] = {"ccfed": ccfed.__version__, "command": f"ccfed reproduce {shlex.join(_what(arguments))}"}
    commit = _commit()
    if commit:
        made["commit"] = commit
    if options.note:
        made["note"] = options.note
    return made


def _what(arguments: Sequence[str]) -> list[str]:
    """The arguments without those that only say where results go, when to stop and what to note."""
    kept, words = [], iter(arguments)
    for word in words:
        option, equals, _ = word.partition("=")
        if option in ASIDE:
            if not equals:
                next(words, None)  # its value
        elif word not in ("--run-only", "--draw-only"):
            kept.append(word)
    return kept


def _commit() -> str:
    """The commit of the source, if it is a checkout of git: such as 1a2b3c4, with a + if files were changed."""
    place = Path(__file__).resolve().parents[3]
    if not (place / ".git").exists():
        return ""
    try:
        asked = ["git", "-C", str(place), "describe", "--always", "--abbrev=7", "--dirty=+", "--exclude=*"]
        return subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


__all__ = ["ReproduceOptions", "main"]
