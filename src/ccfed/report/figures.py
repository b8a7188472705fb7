"""The numbers behind the figures, as the page's script reads them."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ccfed.report.lines import Line
from ccfed.report.reading import FloatArray, FolderRun
from ccfed.report.thinning import ROWS, SPANS, Held, TookPart, chosen_rounds, held, took_part

# The columns of the table of costs, as they are saved: means over the counted runs.
COSTS = (
    "client_steps",
    "compute_saved",
    "flops",
    "bytes_up",
    "bytes_down",
    "storage_client_bytes",
    "storage_server_bytes",
    "seconds",
)
MAPS = 48  # runs whose maps are on the page
FEW = 8  # more runs have coarser maps
UNSELECTED = 255  # a map's byte where nobody was selected; else 0..254 for the share of the selected that trained


def figures(lines: Sequence[Line]) -> dict[str, Any]:
    """`lines`: the curves of each line; `maps`: who took part in some of the runs; `held`: the different tables of who
    holds what that those runs have."""
    maps, tables = _maps(lines)
    return {"lines": [_curves(line, sum(len(line.counted) for line in lines)) for line in lines], "maps": maps} | {
        "held": tables
    }


def _curves(line: Line, curves: int) -> dict[str, Any]:
    """One row a counted run, one column a drawn round; costs are sums up to and with the round."""
    runs, measured = line.counted, _measured(line)
    drawn = measured[chosen_rounds(len(measured), curves)]

    def at(run: FolderRun, values: FloatArray) -> list[float]:
        return [float(f"{value:.6g}") for value in values[drawn]]

    step = [run.federation.get("step_flops") for run in runs]
    return {
        "label": line.label,
        "costs": {name: line.mean(name) for name in COSTS},
        "method": line.method,
        "seeds": [run.seed for run in runs],
        "rounds": (drawn + 1).tolist(),
        "every_round": len(drawn) == len(measured),
        "accuracy": [at(run, run.rounds["accuracy"]) for run in runs],
        "loss": [at(run, run.rounds["loss"]) for run in runs],
        "client_steps": [at(run, run.rounds["client_steps"].cumsum()) for run in runs],
        "bytes": [at(run, (run.rounds["bytes_up"] + run.rounds["bytes_down"]).cumsum()) for run in runs],
        "step_flops": float(step[0]) if step and step[0] is not None else None,
    }


def _measured(line: Line) -> NDArray[np.int64]:
    """The rounds (0, 1, ...) after which accuracy or loss of some counted run was measured; all, if none was."""
    told = np.zeros(line.rounds, dtype=np.bool_)
    for run in line.counted:
        for name in ("accuracy", "loss"):
            told |= np.isfinite(run.rounds[name][: line.rounds])
    return np.flatnonzero(told) if told.any() else np.arange(line.rounds)


def _maps(lines: Sequence[Line]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    # First one run of every line, then the other seeds, as far as the page has room.
    wanted = [(i, run) for i, line in enumerate(lines) for run in line.runs[:1]]
    wanted += [(i, run) for i, line in enumerate(lines) for run in line.runs[1:]]
    tables: dict[str, tuple[int, dict[str, Any]]] = {}
    maps = []
    rows, spans = (ROWS, SPANS) if len(wanted) <= FEW else (ROWS // 2, SPANS * 5 // 8)
    for i, run in sorted(wanted[:MAPS], key=lambda pair: pair[0]):
        told: dict[str, Any] = {"line": i, "seed": run.seed, "clients": run.clients}
        holdings, part = held(run, rows), took_part(run, rows, spans)
        if holdings is not None:
            table = _held(holdings)
            told["held"] = tables.setdefault(repr(table), (len(tables), table))[0]
        if part is not None:
            told["part"] = _part(part)
        maps.append(told | _clients(run, part, holdings))
    return maps, [table for _, table in tables.values()]


def _held(holdings: Held) -> dict[str, Any]:
    exact = holdings.bins.step == 1
    counts = [[float(count if exact else f"{count:.3g}") for count in row] for row in holdings.counts]
    return {"step": holdings.bins.step, "classes": list(holdings.classes), "counts": counts}


def _part(part: TookPart) -> dict[str, Any]:
    share = np.divide(part.trained, part.selected, out=np.zeros_like(part.trained), where=part.selected > 0)
    cells = np.where(part.selected > 0, np.round(share * (UNSELECTED - 1)), UNSELECTED).astype(np.uint8)
    return {
        "step": part.bins.step,
        "span": part.spans.step,
        "rounds": part.spans.count,
        "rows": cells.shape[0],
        "columns": cells.shape[1],
        "cells": base64.b64encode(cells.tobytes()).decode(),
    }


def _clients(run: FolderRun, part: TookPart | None, holdings: Held | None) -> dict[str, Any]:
    """For each row of the maps, means over its clients: the budget p, and how often they were selected and trained."""
    told: dict[str, Any] = {}
    bins = part.bins if part is not None else holdings.bins if holdings is not None else None
    p = run.federation.get("p")
    if bins is not None and p is not None and p.shape == (bins.count,):
        told["p"] = (bins.sums(p) / bins.sizes).tolist()
    if part is not None:
        told["selected"] = (part.selected.sum(1) / part.bins.sizes).tolist()
        told["trained"] = (part.trained.sum(1) / part.bins.sizes).tolist()
    return told
