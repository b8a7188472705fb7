"""Seconds per round, bytes and training on a real deployment: CC-FedAvg against Flower's FedAvg, the same app.

    python benchmarks/flower/deployed.py [--runs 3] [--rounds 12] [--clients 4] [--beta 4] [--strategies fedavg server]

One SuperLink and the SuperNodes run as processes on this machine, without TLS; the strategies take turns, `--runs`
times. Printed are, as a table in Markdown: the seconds between the ends of rounds (the median of all runs' rounds, and
the lowest and the highest median of a run; the first round is left out: that is when apps are fetched and installed),
and of one run (the mean of all runs) the trainings, the seconds and the processor seconds that the training function
took, and the bytes that came to the devices and left them, all summed over the devices. The bytes are those of the
messages' contents, arrays and records; addresses, HTTP and TLS are not counted. Most of a round here is Flower's own: a
SuperNode looks for messages every three seconds, and starts a process for each. Only run this on a machine that does
nothing else: the load at the beginning and at the end is printed, too.
"""

import argparse
import itertools
import os
import platform
import statistics
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
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


from ccfed.flower.wire import content_bytes


def note(name: str, *numbers: float) -> None:
    with (Path(os.environ["CCFED_DEVICES"]) / name).open("a") as file:
        file.write(" ".join(map(str, numbers)) + "\\n")


def count(message, context, call_next):
    reply = call_next(message, context)
    note("traffic", content_bytes(message.content), content_bytes(reply.content))
    return reply
"""


def main() -> None:
    """Prints one row a strategy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--beta", type=float, default=4.0)
    parser.add_argument("--strategies", nargs="+", default=["fedavg", "client", "server", "mixed"])
    options = parser.parse_args()
    versions = f"ccfed {ccfed.__version__}, flwr {flwr.__version__}, torch {torch.__version__}"
    print(f"{processor()}, {os.cpu_count()} cores, {versions}")
    print(f"{options.clients} clients, beta {options.beta:g}, {options.rounds} rounds, {options.runs} runs each")
    print(f"load before: {os.getloadavg()[0]:.1f}")
    found: dict[str, list[Found]] = {strategy: [] for strategy in options.strategies}
    for turn in range(options.runs):
        for strategy, runs in found.items():
            with tempfile.TemporaryDirectory() as folder:
                runs.append(run(strategy, options, Path(folder)))
            told = f"median {statistics.median(runs[-1].rounds):.2f} s a round, load {os.getloadavg()[0]:.1f}"
            print(f"run {turn + 1}, {strategy}: {told}", file=sys.stderr, flush=True)
    print(f"load after: {os.getloadavg()[0]:.1f}\n")
    print("| strategy | seconds a round | trainings | seconds of training | of a processor | bytes down | bytes up |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for strategy, runs in found.items():
        medians = [statistics.median(each.rounds) for each in runs]
        median = statistics.median([seconds for each in runs for seconds in each.rounds])
        sums = [(len(each.trainings), *map(sum, zip(*each.trainings, strict=True))) for each in runs]
        trainings, seconds, processor_seconds = (statistics.mean(column) for column in zip(*sums, strict=True))
        down, up = (statistics.mean(sum(message[i] for message in each.traffic) for each in runs) for i in (0, 1))
        rest = f"{trainings:g} | {seconds:.2f} | {processor_seconds:.2f} | {down:,.0f} | {up:,.0f}"
        print(f"| {strategy} | {median:.2f} ({min(medians):.2f} to {max(medians):.2f}) | {rest} |")


@dataclass(frozen=True)
class Found:
    """Of one run: the seconds of each round but the first, each training's seconds and processor seconds, and the bytes
    of each message that came to a device, and of its answer."""

    rounds: list[float]
    trainings: list[tuple[float, ...]]
    traffic: list[tuple[float, ...]]


def processor() -> str:
    """The name of this machine's processor."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def run(strategy: str, options: argparse.Namespace, folder: Path) -> Found:
    """Runs the app once, from the start of the SuperLink to the end of the last round."""
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
    ends = [end for (end,) in numbers(devices / "ends")]
    rounds = [after - before for before, after in itertools.pairwise(ends[1:])]
    return Found(rounds, numbers(devices / "trainings"), numbers(devices / "traffic"))


def numbers(path: Path) -> list[tuple[float, ...]]:
    """The numbers in a file, line by line."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(map(float, line.split())) for line in lines]


def make_app(strategy: str, options: argparse.Namespace, folder: Path) -> Path:
    """The app that `ccfed flower new` writes, which notes times and bytes; with "fedavg", Flower's strategy without our
    mod."""
    package = folder / new_app(folder, options.clients)
    edit(package / "task.py", {"class Net(": NOTES + "\n\nclass Net("})
    client = {
        "import Net, samples_of, train": "import Net, count, note, samples_of, time, train",
        "mods=[customize()]": "mods=[count]" if strategy == "fedavg" else "mods=[count, customize()]",
        "    loss = train(": "    began, busy = time.perf_counter(), time.process_time()\n    loss = train(",
        "    metrics = Metric": '    note("trainings", time.perf_counter() - began, time.process_time() - busy)\n'
        "    metrics = Metric",
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
        text = (package / "server_app.py").read_text()
        start = text.index("    strategy = CCFedAvg("), text.index("    torch.manual_seed")
        everybody = f"min_train_nodes={options.clients}, min_available_nodes={options.clients}"
        server |= {text[start[0] : start[1]]: f"    strategy = FedAvg(fraction_evaluate=0.0, {everybody})\n"}
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
