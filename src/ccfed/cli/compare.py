"""`ccfed compare`: the same federation under several methods and seeds, side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from ccfed.algorithm.methods import METHODS as ALL
from ccfed.cli.failures import Failure, bad_input, disk_trouble
from ccfed.cli.run import Output, parse, simulate_into
from ccfed.cli.terminal import show, tell
from ccfed.simulation.settings import Settings, known

METHODS = ("fedavg", "cc-fedavg", "strategy-1", "strategy-2")


@dataclass(frozen=True)
class CompareOptions:
    """Simulates the same federation under several methods and seeds; prints a table and draws the curves."""

    settings: Annotated[Settings, tyro.conf.arg(name="")]
    output: Annotated[Output, tyro.conf.arg(name="")]
    methods: tuple[str, ...] = METHODS
    """Methods to compare, separated by spaces."""
    seeds: tuple[int, ...] = (0,)
    """Seeds, separated by spaces; each makes its own split, initial model and draws."""
    ray: str | None = None
    """Address of a Ray cluster (HOST:PORT, or auto for this machine's) over which the federations are spread."""


def main(arguments: Sequence[str]) -> int:
    """Runs `ccfed compare ARGUMENTS`."""
    options = parse(CompareOptions, arguments, "ccfed compare", "compare.toml", methods=str, seeds=int)
    for name, values in (("--methods", options.methods), ("--seeds", options.seeds)):
        if not values or len(set(values)) < len(values):
            raise Failure(f"{name} is {' '.join(map(str, values)) or 'empty'}, but it must list different values")
    with bad_input():
        for method in options.methods:
            known("--methods", method, ALL)
    for name, list_name in (("method", "--methods"), ("seed", "--seeds")):
        if getattr(options.settings, name) != getattr(Settings, name):
            tell(f"--{name} is not used: `ccfed compare` takes {list_name}")
    runs, base = simulate_into(
        options.settings, options.methods, options.seeds, options.output, flat=False, ray=options.ray
    )
    table = runs.table()
    with disk_trouble():
        (base / "table.md").write_text(table.markdown() + "\n")
        runs.plot("accuracy", str(base / "accuracy.png"))
    show(table)
    print(base)
    return 0
