"""Data sets as arrays, and the ways of dealing them out to clients.

federation = data.load("digits").split(data.mixed(iid=0.0), clients=8, seed=0)
"""

from ccfed.data.dataset import Dataset, Federation, Parts
from ccfed.data.flower import flower_partitioner
from ccfed.data.inputs import Inputs
from ccfed.data.own import from_arrays, from_hugging_face, from_npz, from_torch
from ccfed.data.sources import load
from ccfed.data.splits import (
    Split,
    by_name,
    dirichlet,
    explicit,
    highly_skewed,
    iid,
    mixed,
    moderately_skewed,
    shards,
)
from ccfed.data.synthetic import synthetic

__all__ = [
    "Dataset",
    "Federation",
    "Inputs",
    "Parts",
    "Split",
    "by_name",
    "dirichlet",
    "explicit",
    "flower_partitioner",
    "from_arrays",
    "from_hugging_face",
    "from_npz",
    "from_torch",
    "highly_skewed",
    "iid",
    "load",
    "mixed",
    "moderately_skewed",
    "shards",
    "synthetic",
]
