"""The server's state after each round, in one file that is there whole or not at all."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ccfed.algorithm.history import kept_on_server
from ccfed.files import Damaged, Sealed, load_newest, save
from ccfed.flower.course import Course, Plan
from ccfed.flower.journal import Journal

FILE = "checkpoint.safetensors"
VERSION = 2


def write(folder: Path, course: Course, journal: Journal) -> None:
    """Replaces the checkpoint in `folder`; the one before it is kept beside it."""
    history, owners = course.history, course.history.owners()
    past = history.past_of(owners[history.on_server[owners]])
    tensors = {
        "model": course.state.model,
        "statistics": course.statistics,
        "last rounds": history.last_rounds(torch.arange(course.plan.clients)),
        "p": course.p,
        "given p": course.given,
        "trainings": course.trainings,
        "weights": course.weights,
        "states": history.states(owners),
        **{f"past/{name}": tensor for name, tensor in past.items() if name in ("clients", "moves")},
        **{f"origin/{round}": model for round, model in history.origins.items()},
        **{f"server/{name}": tensor for name, tensor in course.state.server.items()},
        **journal.tensors(),
    }
    facts = {
        "version": VERSION,
        "name": course.name,
        "round": course.state.round,
        "plan": facts_of(course.plan),
        "layout": course.layout.rows(),
        "schedules": course.schedules,
        **journal.facts(),
    }
    save(folder / FILE, tensors, facts, keep_previous=True)


def read(folder: Path, say: Callable[[str], None]) -> Sealed | None:
    """The newest good checkpoint in `folder`, or None if there never was one."""
    content = load_newest(folder / FILE, say)
    if content is not None and content.facts.get("version") != VERSION:
        raise Damaged(f"{folder / FILE} was written by another version of ccfed")
    return content


def facts_of(plan: Plan) -> dict[str, Any]:
    """What must not change between a run and its continuation."""
    method = plan.method
    return {
        "method": method.name,
        "schedule": method.schedule.name,
        "estimator": method.estimator.name,
        "server": method.server.name,
        "keep": method.keep,
        "on server": kept_on_server(method.keep, plan.clients, method.on_server).tolist(),
        "clients": plan.clients,
        "rounds": plan.rounds,
        "seed": plan.seed,
        "steps": plan.steps,
        "participation": plan.participation,
        "weighted": plan.weighted,
        "statistics": list(plan.statistics),
    }


def check_same(content: Sealed, course: Course, folder: Path) -> None:
    """Raises ValueError, with the first difference, unless `course` can go on with this checkpoint."""
    for name, value in facts_of(course.plan).items():
        was = content.facts["plan"].get(name)
        if was != value and not (name == "rounds" and value > content.facts["round"]):
            raise ValueError(f"the run in {folder} has {name} {was!r}, but now it is {value!r}: it cannot go on so")
    if content.facts["layout"] != course.layout.rows():
        raise ValueError(f"the run in {folder} has another model: it cannot go on with this one")


def put_back(content: Sealed, course: Course, journal: Journal) -> None:
    """Makes `course` and `journal` what they were when `content` was written."""
    tensors, facts, history = content.tensors, content.facts, course.history
    course.name, course.state.round = facts["name"], facts["round"]
    course.state.model, course.statistics = tensors["model"], tensors["statistics"]
    course.state.server = _under(tensors, "server/")
    course.p, course.given = tensors["p"], tensors["given p"]
    course.trainings, course.weights = tensors["trainings"], tensors["weights"]
    course.schedules = {int(client): name for client, name in facts["schedules"].items()}
    last = tensors["last rounds"]
    owners = (last >= 0).nonzero().flatten()
    history.put_back_rounds(owners, last[owners], tensors["states"])
    history.put_back_moves(tensors["past/clients"], tensors["past/moves"])
    history.put_back_origins({int(round): model for round, model in _under(tensors, "origin/").items()})
    journal.put_back(tensors, facts)


def _under(tensors: dict[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}
