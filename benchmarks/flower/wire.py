"""Bytes that travel between server and devices, and the trainings that devices make: CC-FedAvg against Flower's FedAvg.

    python benchmarks/flower/wire.py [--clients 8] [--rounds 40] [--beta 4] [--hidden 50]

The app is the one that `ccfed flower new` writes, on handwritten digits. Every message is serialised as Flower
serialises it, content and address, and its bytes are counted; HTTP's and TLS's own are not. The counts are the same on
every machine. (Identification numbers of nodes and runs are written in as few bytes as they need: with those of a real
SuperLink a message is about 40 bytes longer.)
"""

import argparse
import importlib
import logging
import sys
import tempfile
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from ccfed import budgets
from ccfed.flower import CCFedAvg, InProcessGrid, customize
from ccfed.flower.new import new_app


def main() -> None:
    """Prints one row a strategy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--beta", type=float, default=4.0)
    parser.add_argument("--hidden", type=int, default=50, help="units of the hidden layer: 75 parameters each")
    options = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        app = Path(folder) / "digits"
        package = new_app(app, options.clients)
        sys.path.insert(0, str(app))
        task = importlib.import_module(f"{package}.task")
        compare(task, options, Path(folder))


def compare(task: object, options: argparse.Namespace, folder: Path) -> None:
    """Runs FedAvg and the three places for pasts, on the same app."""
    p = budgets.levels(options.clients, options.beta)
    common = {"seed": 0, "fraction_evaluate": 0.0}
    rows: list[tuple[str, Strategy, list[object]]] = [("FedAvg (Flower)", FedAvg(fraction_evaluate=0.0), [])]
    for keep in ("client", "server", "mixed"):
        mods = [customize(folder=folder / keep)]
        rows.append((f"CC-FedAvg, {keep}", CCFedAvg(p, keep=keep, **common), mods))  # type: ignore[arg-type]
    print(f"{options.clients} clients, beta {options.beta:g}, {options.rounds} rounds")
    print(f"{'strategy':18} {'trainings':>9} {'bytes down':>12} {'bytes up':>12} {'accuracy':>8}")
    for name, strategy, mods in rows:
        trained: list[int] = []
        app = client_app(task, options, mods, trained)
        grid = InProcessGrid(app, options.clients)
        torch.manual_seed(0)
        first = ArrayRecord(network(task, options.hidden).state_dict())
        result = strategy.start(grid, first, num_rounds=options.rounds, train_config=ConfigRecord({"lr": 0.1}))
        net = network(task, options.hidden)
        net.load_state_dict(result.arrays.to_torch_state_dict())
        accuracy = 100 * task.test(net)[0]  # type: ignore[attr-defined]
        print(f"{name:18} {len(trained):>9,} {grid.sent:>12,} {grid.received:>12,} {accuracy:>7.1f}%")


def network(task: object, hidden: int) -> torch.nn.Module:
    """The app's network, with as many hidden units as are wanted."""
    net = task.Net()  # type: ignore[attr-defined]
    net.hidden, net.out = torch.nn.Linear(64, hidden), torch.nn.Linear(hidden, 10)
    return net  # type: ignore[no-any-return]


def client_app(task: object, options: argparse.Namespace, mods: list[object], trained: list[int]) -> ClientApp:
    """The app's client, which notes its trainings in `trained`."""
    app = ClientApp()

    @app.train(mods=mods)  # type: ignore[arg-type]
    def train(message: Message, context: Context) -> Message:
        client, config = int(context.node_config["partition-id"]), message.content["config"]
        trained.append(client)
        net = network(task, options.hidden)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = task.samples_of(client, options.clients)  # type: ignore[attr-defined]
        seed = 1000 * int(config["server-round"]) + client
        task.train(net, x, y, steps=20, batch_size=32, lr=float(config["lr"]), seed=seed)  # type: ignore[attr-defined]
        content = {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
        return Message(RecordDict(content), reply_to=message)

    return app


if __name__ == "__main__":
    main()
