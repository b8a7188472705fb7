"""How far an estimated local model is from the true one: the client that is looked at is also trained, on the side."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccfed.algorithm import Moment, View, estimators, streams
from ccfed.paper.drawing.distances import MEASURES, OWN_RULE, draw_distances
from ccfed.paper.plan import Entry, Plan
from ccfed.paper.store import Store
from ccfed.paper.studies import SILO_CIFAR10, TITLES, method
from ccfed.simulation import Running, Simulation
from ccfed.training import Trained

RULES = {"last move": estimators.last_move(), "last model": estimators.last_model()}
"""Strategy 3 (CC-FedAvg) and Strategy 2."""


def distances(simulation: Simulation, running: Running, extra: dict[str, Any]) -> None:
    """Looks ahead to the next round: what one client's model would be if it trained, and what the rules estimate.

    Adds to `extra` the round, whether the client will skip it, and for each rule the Euclidean distance and the cosine
    of estimated and true local model, and the cosine of the two moves. The training is not part of the run.
    """
    e, state = running.experiment, running.state
    client = watched_client(running)
    if state.round >= e.rounds or not bool(state.history.knows(client)):
        return
    p = e.method.budget(client)
    skips = not bool(e.method.schedule.decide(Moment(state.round, e.rounds, client, p, e.seed)))
    nobody = torch.zeros(0, dtype=torch.int64)
    none = state.model.new_zeros(0, len(state.model))
    view = View(state.round, e.rounds, state.model, client, nobody, none, state.history)
    estimates = {name: rule.estimate(view) for name, rule in RULES.items()}

    def compare(trained: Trained) -> None:
        if not bool(torch.isfinite(trained.moves).all()):
            return  # a run that is about to diverge has nothing to compare with
        extra.setdefault("client", int(client))
        extra.setdefault("round", []).append(view.round)
        extra.setdefault("skips", []).append(skips)
        for name, estimate in estimates.items():
            assert estimate is not None
            for measure, value in compared(view.model, estimate[0], trained.moves[0]).items():
                extra.setdefault(name, {}).setdefault(measure, []).append(round(value, 6))

    simulation.train_beside(running.jobs(state.model, client, torch.tensor([e.steps])), compare)


def compared(model: Tensor, estimate: Tensor, moved: Tensor) -> dict[str, float]:
    """Estimated against true local model, `model` + move each ([parameters]): distance and cosines."""
    x, a, b = (tensor.double() for tensor in (model, estimate, moved))
    return {
        "euclidean": float((a - b).norm()),
        "cosine": _cosine(x + a, x + b),
        "cosine of moves": _cosine(a, b),
    }


def _cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / (a.norm() * b.norm()).clamp(min=1e-30))


def watched_client(running: Running) -> Tensor:
    """One client drawn from those that ever skip (from all, if none does): int64 [1]."""
    e = running.experiment
    everyone = torch.arange(e.federation.clients)
    scarce = everyone[e.method.budget(everyone) < 1]
    among = scarce if len(scarce) else everyone
    return among[streams.choice(streams.stream(e.seed, "watched client"), len(among), 1)]


def distance() -> Plan:
    """Estimated against true local model, round by round, under Strategy 2 and CC-FedAvg."""
    entries = []
    for name in ("strategy-2", "cc-fedavg"):
        for iid in (0.0, 0.1):
            settings = method(replace(SILO_CIFAR10, iid=iid), name)
            labels = (("iid", f"{iid}"), ("method", TITLES[name]))
            entries.append(Entry(labels, settings, probe="distance"))
    return Plan(
        name="distance",
        title="Estimated against true local model of one client, CIFAR-10, CNN",
        entries=tuple(entries),
        draw=draw_distances,
        table=table,
        csv_rows=csv_rows,
        notes=(
            "Means over the rounds from the second on. In each run both estimates are measured, though only its own"
            " takes part in it (in bold, and in the picture). One client, drawn from those with p < 1; its true model"
            " comes from a training on the side in every round, which the run does not see. The two shares of IID data"
            " are this project's choice.",
        ),
    )


def csv_rows(plan: Plan, store: Store) -> list[dict[str, Any]]:
    """One row a run and estimate: the means over the rounds; empty where nothing has been run."""
    rows = []
    for entry in plan.entries:
        runs = store.of(entry)
        extra: dict[str, Any] = runs[0].extra if runs else {}
        for rule in RULES:
            measured = extra.get(rule, {})
            means = {m: round(float(np.mean(measured[m])), 5) if m in measured else "" for m in MEASURES}
            of_run = {"seed": entry.seeds[0], "client": extra.get("client", ""), "rounds": len(extra.get("round", []))}
            rows.append({**dict(entry.labels), **of_run, "estimate": rule, **means, "key": entry.cells[0].key})
    return rows


def table(plan: Plan, store: Store) -> str:
    """The means as Markdown."""
    head = ["share of IID data", "run of", "estimate", *MEASURES.values()]
    lines = ["| " + " | ".join(head) + " |", "|---:|---|---|" + "---:|" * len(MEASURES)]
    for row in csv_rows(plan, store):
        own = "**" * (OWN_RULE[row["method"]] == row["estimate"])
        cells = ["not run yet", "", ""] if row["euclidean"] == "" else [f"{row[m]:.4f}" for m in MEASURES]
        lines.append(f"| {row['iid']} | {row['method']} | {own}{row['estimate']}{own} | {' | '.join(cells)} |")
    return "\n".join(lines)
