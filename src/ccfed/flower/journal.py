"""The run's folder, the same as a simulation's, with one table more: what each device did in each round."""

import csv
import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ccfed.algorithm import Outcome
from ccfed.files import write_whole
from ccfed.flower.course import Course
from ccfed.records import RoundRecord, curves, participation, row_text, summary, write_rounds


@dataclass(frozen=True)
class DeviceRow:
    """One row of devices.csv. `did` is "trained", "repeated" (sent the move of a training whose answer had been lost),
    "skipped", "estimated" (by the server, without being asked), "silent", "failed" or "refused"; `seconds` is the time
    its training took; `why` says what was wrong, if anything."""

    round: int
    client: int
    did: str
    seconds: float
    bytes_up: int
    bytes_down: int
    why: str = ""


WHY = 300  # characters of a reason
COLUMNS = tuple(field.name for field in fields(DeviceRow))


class Journal:
    """What a run leaves behind: in memory, and in `folder` if there is one."""

    def __init__(self, folder: Path | None, clients: int) -> None:
        self.folder, self.clients = folder, clients
        self.records: list[RoundRecord] = []
        self.counts: dict[str, int] = {}  # how often devices did what, in the whole run
        self.took_part: list[tuple[NDArray[Any], NDArray[Any]]] = []
        self.bytes_up = torch.zeros(clients, dtype=torch.int64)
        self.bytes_down = torch.zeros(clients, dtype=torch.int64)

    def open(self, course: Course) -> None:
        """Writes what is known before the first round, and the tables with the rounds of an earlier call, if any."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.folder / "experiment.toml", _settings(course).encode())
        write_whole(self.folder / "federation.npz", _federation(course))
        write_rounds(self.folder / "rounds.csv", self.records)
        _begin_table(self.folder / "devices.csv", course.state.round)

    def add(
        self,
        selected: Tensor,
        outcome: Outcome,
        rows: Iterable[DeviceRow],
        accuracy: float,
        loss: float,
        seconds: float,
    ) -> RoundRecord:
        """Notes a round: whom the server selected (int64 [S]), what `algorithm.play` says of it, a row a device."""
        new = sorted(rows, key=lambda row: row.client)
        trained, estimated = int(outcome.trained.sum()), int(outcome.estimated.sum())
        record = RoundRecord(
            round=outcome.round,
            accuracy=accuracy,
            loss=loss,
            selected=len(selected),
            trained=trained,
            estimated=estimated,
            silent=len(selected) - trained - estimated,
            client_steps=int(outcome.steps.sum()),
            bytes_up=sum(row.bytes_up for row in new),
            bytes_down=sum(row.bytes_down for row in new),
            seconds=seconds,
        )
        did = torch.isin(selected, outcome.selected[outcome.trained])
        self.records.append(record)
        self.took_part.append((selected.numpy(), did.numpy()))
        for row in new:
            self.counts[row.did] = self.counts.get(row.did, 0) + 1
            self.bytes_up[row.client] += row.bytes_up
            self.bytes_down[row.client] += row.bytes_down
        if self.folder is not None:
            with (self.folder / "rounds.csv").open("a", newline="") as file:
                file.write(row_text(record))
            with (self.folder / "devices.csv").open("a", newline="", encoding="utf-8") as file:
                file.write("".join(map(_row_text, new)))
        return record

    def close(self, course: Course) -> None:
        """Writes who took part, the summary and the curve."""
        if self.folder is None or not self.records:
            return
        write_whole(self.folder / "federation.npz", _federation(course))  # with the p that the owners told
        who = participation(self.took_part, self.clients, self.bytes_up, self.bytes_down)
        write_whole(self.folder / "participation.npz", _packed(who))
        on_clients, on_server = course.history.storage_bytes()
        made = summary(
            self.records,
            method=course.plan.method.name,
            seed=course.plan.seed,
            client_steps_full=sum(record.selected for record in self.records) * course.plan.steps,
            storage_client_bytes=on_clients,
            storage_server_bytes=on_server,
            finished=course.state.round >= course.plan.rounds,
            engine="flower",
            device="devices",
        )
        made |= {did: self.counts.get(did, 0) for did in ("repeated", "failed", "refused")}
        text = json.dumps({name: _or_none(value) for name, value in made.items()}, indent=2)
        write_whole(self.folder / "summary.json", (text + "\n").encode())
        if not math.isnan(self.records[-1].accuracy):
            picture = io.BytesIO()
            curves([_Curve(course.plan.method.name, self.records)]).savefig(picture, format="png")
            write_whole(self.folder / "accuracy.png", picture.getvalue())

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of it, as tensors."""
        lengths = torch.tensor([len(ids) for ids, _ in self.took_part], dtype=torch.int64)
        none = [np.zeros(0, dtype=np.int64)]
        selected = torch.from_numpy(np.concatenate([ids for ids, _ in self.took_part] or none))
        trained = torch.from_numpy(np.concatenate([did for _, did in self.took_part] or none))
        return {
            "took part/lengths": lengths,
            "took part/selected": selected,
            "took part/trained": trained.to(torch.bool),
            "bytes up": self.bytes_up,
            "bytes down": self.bytes_down,
        }

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, as JSON."""
        return {"records": [asdict(record) for record in self.records], "counts": self.counts}

    def put_back(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Takes what `tensors` and `facts` gave."""
        lengths = tensors["took part/lengths"].tolist()
        selected = tensors["took part/selected"].split(lengths)
        trained = tensors["took part/trained"].split(lengths)
        self.took_part = [(ids.numpy(), did.numpy()) for ids, did in zip(selected, trained, strict=True)]
        self.bytes_up, self.bytes_down = tensors["bytes up"], tensors["bytes down"]
        self.records = [RoundRecord(**record) for record in facts["records"]]
        self.counts = dict(facts["counts"])


@dataclass(frozen=True, eq=False)
class _Curve:
    """The records of one run, as curves are drawn from."""

    name: str
    records: list[RoundRecord]

    def column(self, name: str) -> NDArray[Any]:
        return np.array([[getattr(record, name) for record in self.records]], dtype=np.float64)


def _settings(course: Course) -> str:
    """The plan in the words of a simulation's settings."""
    plan, method = course.plan, course.plan.method
    values = {
        "clients": plan.clients,
        "method": method.name,
        "budgets": "explicit",
        "p": course.given.tolist(),
        "schedule": method.schedule.name,
        "keep": method.keep,
        "participation": plan.participation,
        "weights": "samples" if plan.weighted else "equal",
        "rounds": plan.rounds,
        "steps": plan.steps,
        "seed": plan.seed,
    }
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def _federation(course: Course) -> bytes:
    """The content of federation.npz."""
    return _packed({"p": course.p.numpy(), "parameters": np.array(course.layout.parameters)})


def _begin_table(path: Path, round: int) -> None:
    """Leaves in devices.csv its head and the rows of the rounds before `round`: a resumed run writes the rest anew."""
    before: list[str] = []
    if round > 0 and path.exists():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)[1:]
        before = [line for line in lines if line.endswith("\n") and _is_before(line, round)]
    write_whole(path, "".join([",".join(COLUMNS) + "\n", *before]).encode())


def _is_before(line: str, round: int) -> bool:
    number = line.split(",", 1)[0]
    return number.isdecimal() and int(number) < round  # after a power cut, the last lines may be anything


def _packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The content of an .npz file with these arrays."""
    out = io.BytesIO()
    np.savez_compressed(out, allow_pickle=False, **arrays)
    return out.getvalue()


def _row_text(row: DeviceRow) -> str:
    out = io.StringIO()
    values = {**asdict(row), "seconds": f"{row.seconds:.6g}", "why": " ".join(row.why.split())[:WHY]}
    csv.writer(out, lineterminator="\n").writerow(values[name] for name in COLUMNS)
    return out.getvalue()


def _or_none(value: Any) -> Any:
    """JSON knows no NaN."""
    return None if isinstance(value, float) and math.isnan(value) else value
