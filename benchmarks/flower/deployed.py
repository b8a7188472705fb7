"""Seconds per round on a real deployment: CC-FedAvg against Flower's FedAvg, the same app, four SuperNodes.

    python benchmarks/flower/deployed.py [--rounds 20] [--clients 4] [--beta 4] [--strategies fedavg server]

One SuperLink and the SuperNodes run as processes on this machine, without TLS. Printed are the seconds between the ends
of rounds (median and mean, the first round left out: that is when apps are fetched and installed), and the seconds that
the training function ran, summed over all devices. Most of a round here is Flower's own: a SuperNode looks for
messages every three seconds, and starts a process for each. Only run this on a machine that does nothing else.
"""

import argparse
import itertools
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

import flwr
import torch

import ccfed
from ccfed.flower.new import new_app

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "flower"))
from processes import Deployment

NOTES = """
import os
import time
from pathlib import Path


def note(name: str, seconds: float) -> None:
    with (Path(os.environ["CCFED_DEVICES"]) / name).open("a") as file:
        file.write(f"{seconds}\\n")
"""


def main() -> None:
    """Prints one row a strategy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--beta", type=float, default=4.0)
    parser.add_argument("--strategies", nargs="+", default=["fedavg", "client", "server", "mixed"])
    options = parser.parse_args()
    versions = f"ccfed {ccfed.__version__}, flwr {flwr.__version__}, torch {torch.__version__}"
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {versions}")
    print(f"{options.clients} clients, beta {options.beta:g}, {options.rounds} rounds")
    print(f"{'strategy':16} {'s/round (median)':>16} {'s/round (mean)':>14} {'trainings':>9} {'s of training':>13}")
    for strategy in options.strategies:
        with tempfile.TemporaryDirectory() as folder:
            ends, trainings = run(strategy, options, Path(folder))
        rounds = [after - before for before, after in itertools.pairwise(ends[1:])]
        median, mean = statistics.median(rounds), statistics.mean(rounds)
        print(f"{strategy:16} {median:>16.2f} {mean:>14.2f} {len(trainings):>9} {sum(trainings):>13.2f}", flush=True)


def run(strategy: str, options: argparse.Namespace, folder: Path) -> tuple[list[float], list[float]]:
    """The ends of all rounds (the start first) and the seconds of all trainings."""
    devices = folder / "devices"
    devices.mkdir()
    app = make_app(strategy, options, folder / "digits")
    with Deployment(folder / "processes", devices) as processes:
        processes.start_link()
        for client in range(options.clients):
            processes.start_node(client, options.clients)
        processes.flwr("run", str(app), "here")
        wanted = options.rounds + 1
        ended = lambda: len(numbers(devices / "ends")) >= wanted  # noqa: E731
        processes.wait_for(ended, "the last round", seconds=60 + 60 * options.rounds)
    return numbers(devices / "ends"), numbers(devices / "trainings")


def numbers(path: Path) -> list[float]:
    """The numbers in a file, one a line."""
    return [float(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_app(strategy: str, options: argparse.Namespace, folder: Path) -> Path:
    """The app that `ccfed flower new` writes, which notes its times; with "fedavg", Flower's strategy and no mod."""
    package = folder / new_app(folder, options.clients)
    edit(package / "task.py", {"class Net(": NOTES + "\n\nclass Net("})
    client = {
        "import Net, samples_of, train": "import Net, note, samples_of, time, train",
        "    loss = train(": "    began = time.perf_counter()\n    loss = train(",
        "    metrics = Metric": '    note("trainings", time.perf_counter() - began)\n    metrics = Metric',
    }
    server = {
        "import Net, test": "import Net, note, test, time",
        '    return MetricRecord({"acc': '    note("ends", time.time())\n    return MetricRecord({"acc',
    }
    settings = {
        "num-server-rounds = 10": f"num-server-rounds = {options.rounds}",
        "beta = 4.0": f"beta = {options.beta}",
    }
    if strategy == "fedavg":
        client |= {"mods=[customize()]": ""}
        text = (package / "server_app.py").read_text()
        start = text.index("    strategy = CCFedAvg("), text.index("    torch.manual_seed")
        server |= {text[start[0] : start[1]]: "    strategy = FedAvg(fraction_evaluate=0.0)\n"}
        server |= {
            "import Grid, ServerApp\n": "import Grid, ServerApp\nfrom flwr.serverapp.strategy import FedAvg\n",
            '        folder=str(config["folder"]),\n        resume=bool(config["resume"]),\n': "",
        }
    else:
        settings |= {'keep = "client"': f'keep = "{strategy}"'}
    edit(package / "client_app.py", client)
    edit(package / "server_app.py", server)
    edit(folder / "pyproject.toml", settings)
    return folder


def edit(path: Path, changes: dict[str, str]) -> None:
    """Replaces each text, which must be there."""
    text = path.read_text()
    for old, new in changes.items():
        if old not in text:
            raise ValueError(f"{path.name} of the template has no {old!r} any more")
        text = text.replace(old, new, 1)
    path.write_text(text)


if __name__ == "__main__":
    main()
