"""Measures ccfed and its peers on the same two workloads, all in one run, and prints the table of ratios.

Run it with ccfed's own Python: `python benchmarks/peers/run.py`. Each peer gets an environment of its own below .venvs,
made from its pinned requirements the first time. The configurations take turns, `--passes` times, so that a machine
that slows down or speeds up does so for all; every round but the first of each run is timed, evaluation included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from machine import machine, versions
from setups import HERE, PEERS, SETUPS, VENVS, Setup, cannot
from table import Measured, tables
from workload import DEFAULTS, Arrays

from ccfed import data

DATA = {"fmnist-mlp": "fmnist", "cifar-cnn": "cifar10"}
ROUNDS = {"fmnist-mlp": 4, "cifar-cnn": 3}


@dataclass
class Results:
    """What came of each row of a workload: the JSON lines of its runs, or why there is none."""

    lines: dict[Setup, list[dict]] = field(default_factory=dict)
    reasons: dict[Setup, str] = field(default_factory=dict)

    def rates(self, setup: Setup) -> list[float]:
        """Client-steps a second of every timed round."""
        return [line["client_steps"] / seconds for line in self.lines.get(setup, ()) for seconds in line["seconds"]]


def main() -> None:
    options = from_command_line()
    setups = [setup for setup in SETUPS if setup.peer in options.peers]
    failed = {peer: reason for peer in options.peers if (reason := install(peer))}
    if options.install:
        for peer in options.peers:
            say(f"{peer}: {failed.get(peer, 'ready')}")
        return
    results = {workload: Results() for workload in options.workloads}
    with tempfile.TemporaryDirectory() as folder:
        for workload in options.workloads:
            write_arrays(workload, options.data_dir, Path(folder))
        for number in range(options.passes):
            for workload, setup in ((workload, setup) for workload in options.workloads for setup in setups):
                found = results[workload]
                if setup in found.reasons:
                    continue
                reason = failed.get(setup.peer) or cannot(setup, workload)
                line = reason or measure(setup, workload, folder, options, best_threads(found))
                if isinstance(line, str):
                    found.reasons[setup] = line
                else:
                    found.lines.setdefault(setup, []).append(line)
                say(f"pass {number + 1}/{options.passes}, {workload}, {setup.title}: {told(found, setup)}")
    print(report(results, options))
    if options.out:
        raw = {w: {s.title: lines for s, lines in r.lines.items()} for w, r in results.items()}
        options.out.write_text(json.dumps(raw, indent=1))


def from_command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--workloads", nargs="+", choices=DEFAULTS, default=list(DEFAULTS))
    parser.add_argument("--rounds", type=int, help="rounds of a run, the first one untimed (default: 4 and 3)")
    parser.add_argument("--steps", type=int, help="local steps (default: 200 and 100)")
    parser.add_argument("--passes", type=int, default=2, help="turns of each configuration (default: 2)")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds until a run is given up (default: 180)")
    parser.add_argument("--data-dir", help="folder with the original files (default: where ccfed finds them)")
    parser.add_argument("--out", type=Path, help="JSON file for the seconds of every round")
    parser.add_argument("--install", action="store_true", help="make the environments and stop")
    options = parser.parse_args()
    if options.rounds is not None and options.rounds < 2:
        parser.error(f"--rounds is {options.rounds}, but it must be at least 2: the first round is not timed")
    return options


def install(peer: str) -> str | None:
    """Makes the peer's environment, unless it is there as its requirements ask; the reason if that fails."""
    if peer == "ccfed":
        return None
    wanted = (HERE / "requirements" / f"{peer}.txt").read_text()
    venv, mark = VENVS / peer, VENVS / peer / "installed.txt"
    if mark.exists() and mark.read_text() == wanted:
        return None
    say(f"making the environment of {peer}")
    requirements = str(HERE / "requirements" / f"{peer}.txt")
    for command in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(venv / "bin" / "python"), "-m", "pip", "install", "--quiet", "--requirement", requirements],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"cannot be installed: {last_line(done.stderr)}"
    mark.write_text(wanted)
    return None


def write_arrays(workload: str, data_dir: str | None, folder: Path) -> None:
    """The data set as .npy files, which every peer can read."""
    loaded = data.load(DATA[workload], data_dir)
    target = folder / workload
    target.mkdir()
    for part in Arrays._fields:
        np.save(target / f"{part}.npy", getattr(loaded, part).numpy())


def measure(setup: Setup, workload: str, folder: str, options: argparse.Namespace, best: int) -> dict | str:
    """The JSON line of one run, or a sentence on why there is none."""
    threads = setup.threads or best
    command = [setup.python, setup.script]
    if setup.peer == "pfl" and setup.processes > 1:
        command = [setup.python, "-m", "torch.distributed.run", f"--nproc-per-node={setup.processes}", setup.script]
    settings = {
        "workload": workload,
        "data-dir": folder,
        "rounds": options.rounds or ROUNDS[workload],
        "steps": options.steps,
        "processes": setup.processes,
        "threads": threads,
        "engine": setup.engine or None,
    }
    command += [word for name, value in settings.items() if value is not None for word in (f"--{name}", str(value))]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, cwd=HERE, env=environment, stdout=out, stderr=subprocess.STDOUT)
        try:
            process.wait(options.limit)
            trouble = ""
        except subprocess.TimeoutExpired:
            trouble = f"gave no result within {options.limit:g} seconds"
            end(process)
        out.seek(0)
        text = out.read()
    lines = [line for line in text.splitlines() if line.startswith('{"client_steps"')]
    if lines:
        return json.loads(lines[-1])
    return trouble or f"failed: {last_line(text)}"


def end(process: subprocess.Popen) -> None:
    """Kills a process and all that it started."""
    family = [*psutil.Process(process.pid).children(recursive=True), process]
    for member in family:
        member.kill()
    process.wait()


def best_threads(found: Results) -> int:
    """As many threads as made the plain loop fastest in this run; 1 if it was not measured."""
    loops = [setup for setup in SETUPS[:2] if found.rates(setup)]
    return max(loops, key=lambda setup: statistics.median(found.rates(setup))).threads if loops else 1


def told(found: Results, setup: Setup) -> str:
    if setup in found.reasons:
        return found.reasons[setup]
    return f"{statistics.median(found.rates(setup)):,.0f} client-steps a second"


def report(results: dict[str, Results], options: argparse.Namespace) -> str:
    """Machine, versions and, for each workload, the table of ratios."""
    parts = [machine(), versions({setup for r in results.values() for setup in r.lines})]
    for workload, found in results.items():
        if not found.lines:
            parts.append(f"## {workload}\n\nNothing was measured.")
        else:
            line = next(iter(found.lines.values()))[0]
            settings = (
                f"{line['clients']} clients, {line['per_round']} a round, {line['steps']} steps of "
                f"{line['batch_size']}; "
                f"{options.passes} runs of {line['rounds']} rounds each, the first of which is not timed"
            )
            rows = [measured(found, setup) for setup in found.lines]
            parts.append(tables(workload, settings, rows))
        parts += [f"- {setup.title}: {reason}" for setup, reason in found.reasons.items()]
    return "\n\n".join(parts)


def measured(found: Results, setup: Setup) -> Measured:
    lines = found.lines[setup]
    return Measured(
        title=setup.title + (f" ({setup.note})" if setup.note else ""),
        processes=lines[0]["processes"],
        threads=lines[0]["threads"],
        rates=found.rates(setup),
        accuracy=statistics.mean(line["accuracy"][-1] for line in lines),
    )


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or line.startswith("ERROR")]
    return ([*lines, "it said nothing"] if not lines else errors or lines)[-1][:300]


def say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
