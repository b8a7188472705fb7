"""Means of the metrics that devices send, in the order of the clients."""

from collections.abc import Callable, Sequence

from flwr.app import MetricRecord, RecordDict

Metrics = Callable[[list[RecordDict], str], MetricRecord]
"""Flower's `train_metrics_aggr_fn`: the contents of the answers, and the name of the metric that weighs them."""


def mean_metrics(
    contents: Sequence[RecordDict], key: str, weighted: bool, combine: Metrics | None = None
) -> MetricRecord | None:
    """What `combine` makes of `contents`; without it the mean of each metric that all of them have, weighted by the
    metric `key` where `weighted` and all have it. None if there are no contents."""
    if not contents:
        return None
    if combine is not None:
        return combine(list(contents), key)
    flat = [_numbers(content) for content in contents]
    weights = [each.get(key, 0.0) if weighted else 0.0 for each in flat]
    if not all(weight > 0 for weight in weights):
        weights = [1.0] * len(flat)
    common = [name for name in flat[0] if name != key and all(name in each for each in flat)]
    return MetricRecord(
        {name: sum(w * each[name] for w, each in zip(weights, flat, strict=True)) / sum(weights) for name in common}
    )


def _numbers(content: RecordDict) -> dict[str, float]:
    """The metrics that are one number; lists are left to those who know what they mean."""
    found = {name: value for record in content.metric_records.values() for name, value in record.items()}
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
