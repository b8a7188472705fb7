"""`ccfed data`: which data sets are there, get one, check one, and who would hold what."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, TypeVar

import tyro
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ccfed.cli.failures import Failure, bad_input, disk_trouble, memory_trouble
from ccfed.cli.options import read_options
from ccfed.data import status
from ccfed.data.originals import ORIGINALS, Original
from ccfed.data.sources import places
from ccfed.simulation.experiment import federation_of
from ccfed.simulation.results import in_bytes
from ccfed.simulation.settings import Settings, known

T = TypeVar("T")

COLOURS: Mapping[status.State, str] = {
    "embedded": "green",
    "there": "green",
    "checked": "bold green",
    "damaged": "bold red",
    "incomplete": "yellow",
    "missing": "dim",
}
PICTURES = (".png", ".pdf", ".svg")

HELP = """usage: ccfed data [list | get | check | show] [OPTIONS]

  list   which data sets are there and which are missing (also without a word)
  get    download data sets that are not there
  check  read data sets and compare every file with its checksum
  show   who holds what once a data set is dealt out to clients

`ccfed data WORD --help` explains every option with its default."""


@dataclass(frozen=True)
class ListOptions:
    """Lists the data sets that are known by name, and where their files are; no checksum is computed."""

    data_dir: Path | None = None
    """Folder with original files (default: $CCFED_DATA, then the usual places)."""


@dataclass(frozen=True)
class GetOptions:
    """Downloads data sets into the user's cache, unless their files are somewhere already, and checks them.

    A download that was cut off goes on where it stopped."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Data sets: fmnist, cifar10, cifar100."""
    data_dir: Path | None = None
    """Folder with original files (default: $CCFED_DATA, then the usual places)."""
    mirror: str | None = None
    """Address of a folder that holds the same files, instead of the original address."""


@dataclass(frozen=True)
class CheckOptions:
    """Reads data sets and compares every file with its checksum; exit code 1 if anything is wrong or missing."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Data sets (default: all that are there)."""
    data_dir: Path | None = None
    """Folder with original files (default: $CCFED_DATA, then the usual places)."""


@dataclass(frozen=True)
class ShowOptions:
    """Shows who holds what: the samples of each class at each client, as a table and as a picture."""

    data: str = Settings.data
    """Data set: digits (shipped with ccfed), fmnist, cifar10, cifar100, or a path to an .npz file."""
    data_dir: str | None = Settings.data_dir
    """Folder with the data set's original files (default: $CCFED_DATA, then the usual places)."""
    clients: int = Settings.clients
    """Number of clients N."""
    split: str = Settings.split
    """Who holds what: mixed, shards, highly-skewed, moderately-skewed, dirichlet or iid."""
    iid: float = Settings.iid
    """With --split mixed: the share gamma of the data that is dealt out evenly; the rest is sorted by label."""
    shards_per_client: int = Settings.shards_per_client
    """With --split shards: label-sorted shards for each client."""
    alpha: float = Settings.alpha
    """With --split dirichlet: concentration; small values mean few classes a client."""
    smallest: int = Settings.smallest
    """With --split dirichlet: the fewest samples that a client holds."""
    seed: int = Settings.seed
    """Seed of the split."""
    config: Path | None = None
    """TOML file with settings, such as a run's experiment.toml; options on the command line win over it."""
    out: Path | None = None
    """Where to draw the picture, clients by classes: a .png, .pdf or .svg file (default: no picture)."""


def main(arguments: Sequence[str], originals: Mapping[str, Original] = ORIGINALS) -> int:
    """Runs `ccfed data ARGUMENTS`, with the data sets of `originals` besides the embedded one."""
    words = list(arguments)
    match words[:1]:
        case [] | ["list"]:
            return _list(_parse(ListOptions, words[1:], "list"), originals)
        case ["get"]:
            return _get(_parse(GetOptions, words[1:], "get"), originals)
        case ["check"]:
            return _check(_parse(CheckOptions, words[1:], "check"), originals)
        case ["show"]:
            return _show(words[1:])
        case ["-h"] | ["--help"]:
            print(HELP)
            return 0
        case [option] if option.startswith("-"):
            return _list(_parse(ListOptions, words, "list"), originals)
    raise Failure(f"{words[0]!r} is no word of it: say list, get, check or show")


def _parse(kind: type[T], arguments: list[str], word: str) -> T:
    return read_options(kind, arguments, f"ccfed data {word}")


def _list(options: ListOptions, originals: Mapping[str, Original]) -> int:
    with bad_input():
        rows = status.list_all(options.data_dir, originals=originals)
    _print(rows)
    return 0


def _get(options: GetOptions, originals: Mapping[str, Original]) -> int:
    if not options.names:
        raise Failure(f"get needs at least one NAME: {', '.join(originals)}")
    if options.mirror:
        if not options.mirror.startswith(("http://", "https://")):
            raise Failure(f"--mirror is {options.mirror!r}, but it must begin with http:// or https://")
        originals = {name: original.mirrored(options.mirror) for name, original in originals.items()}
    _refuse_bad_input(options.names, options.data_dir, originals)
    rows = []
    for name in dict.fromkeys(options.names):
        try:
            rows.append(status.get(name, options.data_dir, originals=originals))
        except ValueError as error:
            raise Failure(str(error), 1) from error
    _print(rows)
    return 0


def _check(options: CheckOptions, originals: Mapping[str, Original]) -> int:
    _refuse_bad_input(options.names, options.data_dir, originals)
    with bad_input():
        listed = {row.name: row for row in status.list_all(options.data_dir, originals=originals)}
    chosen = options.names or [name for name, row in listed.items() if row.state != "missing"]
    rows, troubles = [], []
    for name in dict.fromkeys(chosen):
        try:
            row = status.check(name, options.data_dir, originals=originals)
            if row.state in ("missing", "incomplete"):
                troubles.append(f"{name} is {row.state}: {row.note}")
        except ValueError as error:
            row = replace(listed[name], state="damaged")
            troubles.append(str(error))
        rows.append(row)
    _print(rows)
    for trouble in troubles:
        print(f"ccfed data: {trouble}", file=sys.stderr)
    return 1 if troubles else 0


def _show(words: list[str]) -> int:
    options = _parse(ShowOptions, words, "show")
    shared = {field.name for field in fields(ShowOptions)} & {field.name for field in fields(Settings)}
    with bad_input(), memory_trouble():
        configured = Settings()
        if options.config:
            configured = Settings.from_toml(options.config)
            default = ShowOptions(**{name: getattr(configured, name) for name in shared})
            options = read_options(ShowOptions, words, "ccfed data show", default)
        if options.out and options.out.suffix not in PICTURES:
            raise ValueError(f"--out is {str(options.out)!r}, but its name must end in {', '.join(PICTURES)}")
        settings = replace(configured, **{name: getattr(options, name) for name in shared})
        holdings = federation_of(settings.check()).describe()
    print(holdings)
    if options.out:
        with disk_trouble():
            print(holdings.plot(options.out))
    return 0


def _refuse_bad_input(names: Sequence[str], data_dir: Path | None, originals: Mapping[str, Original]) -> None:
    """An unknown name or folder is the user's (exit code 2); what comes later is the files' or the server's."""
    with bad_input():
        for name in names:
            known("NAME", name, ("digits", *originals))
            if name in originals:
                places(originals[name], data_dir)


def _print(rows: Sequence[status.Status]) -> None:
    """The rows as a table on stdout: coloured on a terminal, uncut elsewhere."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("data set", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("size", no_wrap=True, justify="right")
    table.add_column("where", overflow="fold")
    for row in rows:
        where = ": ".join(part for part in (row.place, row.note) if part)
        state = Text(row.state, style=COLOURS[row.state])
        table.add_row(Text(row.name), state, in_bytes(row.size), Text(where))
    console.print(table)
