"""Flower's simulation: ServerApp and ClientApp as in its PyTorch quick start, one Ray actor a process."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workload import Stopwatch, from_command_line
from workload_torch import accuracy, batches, model

workload = from_command_line()
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(workload.threads)
    net = model(workload)
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader = batches(workload, int(context.node_config["partition-id"]))
    optimizer = torch.optim.SGD(net.parameters(), lr=workload.lr)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(loader.y)})
    reply = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=reply, reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    torch.set_num_threads(workload.threads)
    net = model(workload)
    watch = Stopwatch(workload)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        net.load_state_dict(arrays.to_torch_state_dict())
        share = accuracy(net, workload)
        if server_round > 0:
            watch.lap(share)
        return MetricRecord({"accuracy": share})

    strategy = FedAvg(
        fraction_train=workload.per_round / workload.clients,
        fraction_evaluate=0.0,
        min_available_nodes=workload.clients,
    )
    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(net.state_dict()),
        train_config=ConfigRecord({"lr": workload.lr}),
        num_rounds=workload.rounds,
        evaluate_fn=evaluate,
    )
    watch.report()


if __name__ == "__main__":
    resources = {"num_cpus": workload.threads, "num_gpus": 0.0}
    run_simulation(
        server_app,
        client_app,
        num_supernodes=workload.clients,
        backend_config={
            "init_args": {"num_cpus": workload.processes * workload.threads},
            "client_resources": resources,
        },
    )
