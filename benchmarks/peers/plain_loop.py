"""No framework: FedAvg as a loop around PyTorch, in one process or with the clients shared out to several."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import multiprocessing
from workload import Stopwatch, Workload, from_command_line
from workload_torch import accuracy, batches, model

State = dict[str, torch.Tensor]


def train(job: tuple[Workload, int, State]) -> State:
    """One client's local steps from the global model's state; its own state afterwards."""
    workload, client, state = job
    torch.set_num_threads(workload.threads)
    net = model(workload)
    net.load_state_dict(state)
    optimizer = torch.optim.SGD(net.parameters(), lr=workload.lr)
    for x, y in batches(workload, client):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    return net.state_dict()


def main() -> None:
    workload = from_command_line()
    torch.set_num_threads(workload.threads)
    net = model(workload)
    draw = np.random.default_rng(workload.seed)
    pool = multiprocessing.get_context("spawn").Pool(workload.processes) if workload.processes > 1 else None
    watch = Stopwatch(workload)
    for _ in range(workload.rounds):
        chosen = draw.choice(workload.clients, workload.per_round, replace=False)
        jobs = [(workload, int(client), copy.deepcopy(net.state_dict())) for client in chosen]
        states = pool.map(train, jobs, chunksize=1) if pool else [train(job) for job in jobs]
        net.load_state_dict({k: torch.stack([s[k] for s in states]).mean(0) for k in states[0]})
        watch.lap(accuracy(net, workload))
    watch.report()
    if pool:
        pool.terminate()


if __name__ == "__main__":
    main()
