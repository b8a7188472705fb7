"""Means of the metrics that devices send, in the order of the clients."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import MetricRecord, RecordDict

Metrics = Callable[[list[RecordDict], str], MetricRecord]
"""Flower's `train_metrics_aggr_fn`: the contents of the answers, and the name of the metric that weighs them."""


def mean_metrics(
    contents: Sequence[RecordDict], key: str, weighted: bool, combine: Metrics | None = None
) -> MetricRecord | None:
    """What `combine` makes of `contents`; without it the mean of each metric that all of them have (of a list number by
    number, if it is equally long everywhere), weighted by the metric `key` where `weighted` and all have it. None if
    there are no contents."""
    if not contents:
        return None
    if combine is not None:
        return combine(list(contents), key)
    flat = [_metrics(content) for content in contents]
    weights = np.ones(len(flat))
    if weighted and all(isinstance(each.get(key), int | float) and each[key] > 0 for each in flat):
        weights = np.array([each[key] for each in flat], dtype=np.float64)
    shares = weights / weights.sum()
    mean: dict[str, int | float | list[int] | list[float]] = {}
    for name in flat[0]:
        found = [each.get(name) for each in flat]
        alike = len({len(value) if isinstance(value, list) else -1 for value in found}) == 1
        if name != key and alike and not any(value is None for value in found):
            mean[name] = (shares @ np.array(found, dtype=np.float64)).tolist()
    return MetricRecord(mean)


def _metrics(content: RecordDict) -> dict[str, Any]:
    return {name: value for record in content.metric_records.values() for name, value in record.items()}
