"""Prints what a round costs in federations of a thousand to a million clients: time, memory, disk.

    python benchmarks/scale.py                                  10^3 to 10^6 clients, 1000 a round, 100 rounds
    python benchmarks/scale.py --history-memory 50MB,50MB       the same with most pasts in files

Each size is a run of `ccfed run` in a process of its own, on made-up data with two samples for each client. With --p 1
all 1000 selected clients train in every round, so that rounds do the same work whatever the number of clients; every
client that ever trained has a past. Give other options of `ccfed run` after --.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import ccfed
from ccfed.records import read_rounds
from ccfed.simulation.results import in_bytes

COLUMNS = ("clients", "s a round", "s besides", "peak memory", "pasts", "disk", "where pasts may lie")


def measured(clients: int, options: argparse.Namespace, folder: Path) -> list[str]:
    """One row of the table."""
    words = ["--data", "synthetic", "--clients", clients, "--participation", options.selected / clients]
    words += ["--rounds", options.rounds, "--steps", options.steps, "--budgets", "explicit", "--p", options.p]
    words += ["--history-memory", options.history_memory, "--out", folder, *options.rest]
    command = [sys.executable, "-c", "import ccfed.cli; raise SystemExit(ccfed.cli.main())", "run", *map(str, words)]
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().splitlines()
    if process.returncode:
        raise SystemExit(f"{clients} clients: exit code {process.returncode}: {lines[-1]}")
    seconds = [record.seconds for record in read_rounds(folder / "rounds.csv")]
    summary = json.loads((folder / "summary.json").read_text())
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    where = next((line.partition("up to ")[2] for line in lines if line.startswith("pasts take")), "none")
    return [
        f"{clients:,}",
        f"{statistics.median(seconds):.3f}",
        f"{took - sum(seconds):.1f}",
        in_bytes(peak),
        in_bytes(summary["storage_client_bytes"]),
        in_bytes(disk),
        where.replace(str(folder), "the run's folder"),
    ]


def main() -> None:
    """Prints the table as Markdown, a row as soon as it is measured, and under it what it was measured with."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6])
    parser.add_argument("--selected", type=int, default=1000, help="clients selected in each round")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--p", type=float, default=1.0, help="budget p of every client")
    parser.add_argument("--history-memory", default="auto")
    parser.add_argument("rest", nargs="*", help="further options of `ccfed run`")
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + " ---: |" * (len(COLUMNS) - 1) + " --- |")
    with tempfile.TemporaryDirectory() as folder:
        for clients in options.clients:
            print("| " + " | ".join(measured(clients, options, Path(folder) / str(clients))) + " |", flush=True)
    threads = os.environ.get("OMP_NUM_THREADS", os.cpu_count())
    print(
        f"\n{options.selected} clients a round, {options.rounds} rounds of {options.steps} steps, p {options.p:g}; "
        f"median seconds of a round, seconds of everything besides rounds (start, data, files); "
        f"{os.cpu_count()} cores, {threads} threads, Python {platform.python_version()}, torch {torch.__version__}, "
        f"ccfed {ccfed.__version__}"
    )


if __name__ == "__main__":
    main()
