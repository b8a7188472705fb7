"""Splits made by Flower's partitioners (`flwr_datasets`, an optional extra)."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ccfed.data.dataset import Parts
from ccfed.data.splits import Split, explicit


def flower_partitioner(
    partitioner: Any, *, label: str = "label", columns: Mapping[str, Sequence[Any]] | None = None
) -> Split:
    """Any partitioner of `flwr_datasets` as a split: `flower_partitioner(DirichletPartitioner(8, "label", alpha=0.5))`.

    The partitioner must not have a data set yet: it is given one with the labels in the column `label` and the
    `columns` [n each] that it may need besides, such as the user of each sample. It keeps its own seed; the split's
    seed is not used.
    """
    if partitioner.is_dataset_assigned():
        raise ValueError("the partitioner has a data set already: hand it over before one is assigned")

    def deal(labels: Tensor, clients: int, seed: int) -> Parts:
        try:
            from datasets import Dataset
        except ImportError:
            raise ImportError("Flower's partitioners need an extra: pip install 'ccfed[datasets]'") from None
        mine = copy.deepcopy(partitioner)
        table = {label: labels.tolist(), "ccfed_row": list(range(len(labels)))}
        mine.dataset = Dataset.from_dict({**table, **{name: list(values) for name, values in (columns or {}).items()}})
        if mine.num_partitions != clients:
            raise ValueError(
                f"--clients {clients} does not fit the partitioner, which makes {mine.num_partitions} parts"
            )
        rows = [np.array(mine.load_partition(part)["ccfed_row"][:], dtype=np.int64) for part in range(clients)]
        return explicit(rows)(labels, clients, seed)

    return Split(type(partitioner).__name__, deal)
