"""`ccfed bench`: how fast this machine trains, by each engine and by a plain loop."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ccfed.cli.failures import Failure, bad_input, disk_trouble
from ccfed.cli.options import read_options
from ccfed.cli.terminal import show, tell
from ccfed.simulation.settings import known, known_device
from ccfed.training.choose import ENGINES
from ccfed.training.engine import Precision

if TYPE_CHECKING:
    from ccfed.bench import Pace, Saving
    from ccfed.simulation import Table


@dataclass(frozen=True)
class BenchOptions:
    """Measures whole rounds (batches, training, mean and test) by each engine and by a plain loop around PyTorch.

    They take turns on the same made-up images, so ratios hold even if the machine slows down meanwhile. Let the
    machine do nothing else.
    """

    works: tuple[str, ...] = ()
    """What to train: mlp-20, mlp-80, mlp-2000, cnn-8, cnn-64, resnet18-8: the model and the trainings in a round
    (default: mlp-20 cnn-8; on a GPU all others)."""
    engines: tuple[str, ...] = ()
    """one-by-one, together, streams (default: all that the device has)."""
    rounds: int = 3
    """Rounds of each turn that are timed, after one that warms up."""
    passes: int = 3
    """Turns of each engine."""
    steps: int | None = None
    """Local steps of a round (default: as the work has them)."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu or cuda."""
    precision: Precision = "float32"
    """How exactly a GPU multiplies matrices: tf32 and bfloat16 are faster, with slightly different results."""
    methods: bool = False
    """Also measure what CC-FedAvg (beta = 4) takes of FedAvg's time, on the fastest engine."""
    out: Path | None = None
    """JSON file for the seconds of every round."""


def main(arguments: Sequence[str]) -> int:
    """Runs `ccfed bench ARGUMENTS`."""
    options = read_options(BenchOptions, arguments, "ccfed bench")
    from dataclasses import replace

    import torch

    import ccfed
    from ccfed.bench import WORKS, compare_engines, compare_methods, machine, works_for
    from ccfed.simulation.simulate import find_device

    with bad_input():
        _check(options, tuple(WORKS))
        device = find_device(options.device)
    engines = options.engines or (ENGINES if device.type == "cuda" else ("one-by-one", "together"))
    told = f"{machine(device)}; torch {torch.__version__}, ccfed {ccfed.__version__}"
    paces: list[Pace] = []
    savings: list[Saving] = []
    for name in options.works or works_for(device):
        work = WORKS[name] if options.steps is None else replace(WORKS[name], steps=options.steps)
        found = compare_engines(
            work, engines, device, options.precision, rounds=options.rounds, passes=options.passes, say=tell
        )
        paces += found
        usable = [(pace.median, engine) for pace, engine in zip(found[1:], engines, strict=True) if not pace.refused]
        if options.methods and usable:
            savings.append(
                compare_methods(work, max(usable)[1], device, options.precision, passes=options.passes, say=tell)
            )
    if options.out is not None:
        with disk_trouble():
            values = {"machine": told, "paces": [asdict(p) for p in paces], "savings": [asdict(s) for s in savings]}
            options.out.write_text(json.dumps(values, indent=1) + "\n")
    print(f"{told}; FedAvg, {options.precision}, {options.passes} turns of {options.rounds} rounds\n")
    show(table(paces))
    for saving in savings:
        print(f"\n{_told(saving)}")
    return 0


def _check(options: BenchOptions, works: Sequence[str]) -> None:
    for name in options.works:
        known("--works", name, works)
    for name in options.engines:
        known("--engines", name, ENGINES)
    known_device(options.device)
    for option in ("rounds", "passes", "steps"):
        value = getattr(options, option)
        if value is not None and value < 1:
            raise ValueError(f"--{option} is {value}, but it must be at least 1")
    if options.out is not None and not options.out.resolve().parent.is_dir():
        raise Failure(f"--out is {str(options.out)!r}, but its folder does not exist")


def table(paces: "Sequence[Pace]") -> "Table":
    """One row for each way of training each work; "x plain loop" is by the medians."""
    from ccfed.simulation import Table

    plain = {pace.work: pace.median for pace in paces if pace.how == "plain loop"}
    return Table(
        [
            {
                "work": pace.work,
                "trained by": pace.how,
                "trainings": pace.jobs,
                "threads": pace.threads,
                "client-steps/s": "-" if pace.refused else f"{pace.median:,.0f}",
                "lowest to highest": "-" if pace.refused else f"{min(pace.rates):,.0f} to {max(pace.rates):,.0f}",
                "x plain loop": "-" if pace.refused else f"{pace.median / plain[pace.work]:.2f}",
            }
            for pace in paces
        ]
    )


def _told(saving: "Saving") -> str:
    return (
        f"{saving.work}, {saving.how}: cc-fedavg at beta = 4 makes {statistics.median(saving.steps):.2f} of fedavg's "
        f"client-steps and takes {statistics.median(saving.seconds):.2f} of its time "
        f"({min(saving.seconds):.2f} to {max(saving.seconds):.2f})"
    )


__all__ = ["BenchOptions", "main"]
