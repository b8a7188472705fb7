"""What every method costs: accuracy against client-steps, traffic and storage, under Algorithms 1, 2 and 3."""

from dataclasses import replace
from typing import Any

from ccfed.paper.drawing.cost import draw_cost
from ccfed.paper.plan import Entry, Plan
from ccfed.paper.store import Finished, Store
from ccfed.paper.studies import DEVICE_FMNIST, TITLES, method

ALGORITHMS = {"client": "Algorithm 1", "server": "Algorithm 2", "mixed": "Algorithm 3"}
WITHOUT_PAST = ("fedavg", "dropout", "strategy-1", "fednova", "fednova-plain")
WITH_PAST = ("strategy-2", "cc-fedavg", "cc-fedavg-c", "fedopt")


def cost() -> Plan:
    """Fashion-MNIST, 100 clients of which 20 % take part; the pasts on the clients, on the server, or mixed."""
    base = replace(DEVICE_FMNIST, participation=0.2)
    entries = [Entry((("method", TITLES[name]),), method(base, name)) for name in WITHOUT_PAST]
    for name in WITH_PAST:
        for keep, algorithm in ALGORITHMS.items():
            # The pasts are on the clients unless said otherwise, so that Algorithm 1 is a run of the tables.
            settings = replace(method(base, name), keep=None if keep == "client" else keep)
            entries.append(Entry((("method", f"{TITLES[name]}, {algorithm}"),), settings))
    entries.append(Entry((("method", TITLES["mifa"]),), method(base, "mifa")))
    return Plan(
        name="cost",
        title="What every method costs: Fashion-MNIST, MLP, 100 clients, 20 % take part, beta = 4",
        entries=tuple(entries),
        draw=draw_cost,
        table=table,
        csv_rows=csv_rows,
        notes=(
            "Accuracy is the mean of the last ten rounds, of one seed. Algorithms 1, 2 and 3 differ in where a client's"
            " past is kept (on the client, on the server, every other client's on the server), and in nothing else: on"
            " one machine their accuracy is the same in every round.",
            "MIFA averages over all clients, so that its clients' pasts are on the server.",
        ),
    )


def csv_rows(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """One row a method and algorithm; empty where nothing has been run."""
    return [{"method": e.label("method"), "seed": e.seeds[0], **_costs(store.of(e))} for e in plan.entries]


def _costs(runs: list[Finished]) -> dict[str, Any]:
    names = ("accuracy", "client_steps", "bytes_up", "bytes_down", "storage_client_bytes", "storage_server_bytes")
    if not runs:
        return dict.fromkeys(names, "")
    run = runs[0]
    values = (round(run.measure("mean_last_10"), 2), sum(run.client_steps), *(getattr(run, n) for n in names[2:]))
    return dict(zip(names, values, strict=True))


def table(plan: Plan, store: Store) -> str:
    """The costs as Markdown."""
    head = ["method", "accuracy %", "client-steps", "GB up", "GB down", "MB on clients", "MB on server"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    for row in csv_rows(plan, store):
        if row["accuracy"] == "":
            cells = ["not run yet", *[""] * 5]
        else:
            cells = [f"{row['accuracy']:.2f}", f"{row['client_steps']:,}"]
            cells += [f"{row[name] / 1e9:.2f}" for name in ("bytes_up", "bytes_down")]
            cells += [f"{row[name] / 1e6:.1f}" for name in ("storage_client_bytes", "storage_server_bytes")]
        lines.append("| " + " | ".join([row["method"], *cells]) + " |")
    return "\n".join(lines)
