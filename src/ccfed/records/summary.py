"""A run in some twenty numbers: the contents of summary.json."""

from collections.abc import Sequence
from typing import Any

import ccfed
from ccfed.records.rounds import RoundRecord


def summary(
    records: Sequence[RoundRecord],
    *,
    method: str,
    seed: int,
    client_steps_full: int,
    storage_client_bytes: int,
    storage_server_bytes: int,
    finished: bool,
    engine: str,
    device: str,
) -> dict[str, Any]:
    """The summary of a run that played the rounds `records`, of which there is at least one."""
    steps = sum(record.client_steps for record in records)
    return {
        "method": method,
        "accuracy_last": records[-1].accuracy,
        "accuracy_best": max(record.accuracy for record in records),
        "client_steps": steps,
        "client_steps_full": client_steps_full,
        "compute_saved": 1 - steps / client_steps_full,
        "bytes_up": sum(record.bytes_up for record in records),
        "bytes_down": sum(record.bytes_down for record in records),
        "storage_client_bytes": storage_client_bytes,
        "storage_server_bytes": storage_server_bytes,
        "rounds": len(records),
        "finished": finished,
        "seconds": sum(record.seconds for record in records),
        "engine": engine,
        "device": device,
        "seed": seed,
        "ccfed": ccfed.__version__,
    }
