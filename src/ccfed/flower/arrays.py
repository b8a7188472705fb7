"""Flower's named arrays seen as one flat vector of parameters, which is how the algorithm sees a model."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

FLOATS = ("float16", "float32", "float64")
WHOLE = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


class Refused(ValueError):
    """An answer that cannot enter the mean; the message says why."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Names, shapes and types of a model's floating-point arrays, in the order in which they lie in a vector [size]:
    first the `parameters` numbers that are trained, then those that are running statistics of the data.

    Arrays of whole numbers or truth values, such as counters, are neither: `pack` takes them as they are from the model
    before.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[str, ...]
    parameters: int

    @classmethod
    def of(cls, arrays: ArrayRecord, statistics: Sequence[str] = ()) -> "Layout":
        """Reads the layout off a model, whose running statistics have names like one of the patterns `statistics`."""
        for name, array in arrays.items():
            if array.dtype not in FLOATS + WHOLE:
                known = ", ".join(FLOATS)
                raise ValueError(f"array {name!r} of the model is {array.dtype}, but only {known} can be trained")
        floats = [name for name, array in arrays.items() if array.dtype in FLOATS]
        noted = [name for name in floats if any(fnmatchcase(name, pattern) for pattern in statistics)]
        own = [name for name in floats if name not in noted]
        if not own:
            found = ", ".join(sorted({array.dtype for array in arrays.values()})) or "no arrays"
            raise ValueError(f"the model has {found}, but at least one array of {', '.join(FLOATS)} is needed")
        shapes = {name: tuple(arrays[name].shape) for name in own + noted}
        parameters = sum(math.prod(shapes[name]) for name in own)
        return cls(tuple(shapes), tuple(shapes.values()), tuple(arrays[name].dtype for name in shapes), parameters)

    def rows(self) -> list[list[object]]:
        """Name, shape and type of each array, as JSON knows them."""
        return [
            [name, list(shape), kind] for name, shape, kind in zip(self.names, self.shapes, self.kinds, strict=True)
        ]

    @property
    def size(self) -> int:
        """The number of all of them."""
        return sum(map(math.prod, self.shapes))

    @property
    def dtype(self) -> torch.dtype:
        """The type of the vector: the widest of the arrays', and at least float32."""
        return torch.float64 if "float64" in self.kinds else torch.float32

    def flat(self, arrays: ArrayRecord) -> Tensor:
        """The vector [size] of a model or of a move with this layout; `Refused` if `arrays` are others."""
        missing = [name for name in self.names if name not in arrays]
        if missing:
            raise Refused(f"array {missing[0]!r} is missing")
        pieces = []
        for name, shape, kind in zip(self.names, self.shapes, self.kinds, strict=True):
            array = arrays[name]
            if tuple(array.shape) != shape or array.dtype != kind:
                raise Refused(f"array {name!r} is {array.dtype} {list(array.shape)}, not {kind} {list(shape)}")
            try:
                values = array.numpy()
            except Exception as error:  # bytes from elsewhere can make NumPy's reader raise almost anything
                raise Refused(f"array {name!r} cannot be read: {error or type(error).__name__}") from error
            if not isinstance(values, np.ndarray):
                raise Refused(f"array {name!r} cannot be read: it is a file of {type(values).__name__}")
            if values.shape != shape or str(values.dtype) != kind:
                raise Refused(f"array {name!r} says {kind} {list(shape)} but is {values.dtype} {list(values.shape)}")
            pieces.append(torch.from_numpy(np.array(values)).reshape(-1).to(self.dtype))
        return torch.cat(pieces)

    def tensors(self, flat: Tensor) -> dict[str, Tensor]:
        """The arrays of a vector [size], each with its own shape and type."""
        parts = flat.split([math.prod(shape) for shape in self.shapes])
        named = zip(self.names, self.shapes, self.kinds, parts, strict=True)
        return {name: part.reshape(shape).to(getattr(torch, kind)) for name, shape, kind, part in named}

    def pack(self, flat: Tensor, before: ArrayRecord | None = None) -> ArrayRecord:
        """The vector [size] as Flower's arrays; with `before`, in its order and with its other arrays."""
        made = {name: Array(tensor.cpu().numpy()) for name, tensor in self.tensors(flat).items()}
        return ArrayRecord(made if before is None else {name: made.get(name, array) for name, array in before.items()})


def is_sound(move: Tensor) -> bool:
    """Whether a move [size] may enter a mean: its numbers are finite, and so far from the largest ones that even their
    squares can be added up."""
    return bool(torch.isfinite(move.dot(move)))


def checksum(arrays: ArrayRecord) -> str:
    """A number that tells whether a model is the same to the bit: hexadecimal."""
    found = hashlib.blake2b(digest_size=16)
    for name, array in arrays.items():
        found.update(f"{name} {array.dtype} {list(array.shape)} {len(array.data)} ".encode())
        found.update(array.data)
    return found.hexdigest()
