"""The file formats of the original data sets, decoded from bytes: IDX, and the two versions of CIFAR."""

import io
import pickle
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

SIDE = 32
PIXELS = 3 * SIDE * SIDE


class Arrays(NamedTuple):
    """Images uint8 [n, C, H, W] and labels int64 [n], for training and for testing."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def idx_set(files: Mapping[str, bytes]) -> Arrays:
    """The four IDX files of MNIST and its likes."""

    def part(prefix: str) -> tuple[Tensor, Tensor]:
        images, labels = idx(files[f"{prefix}-images-idx3-ubyte"]), idx(files[f"{prefix}-labels-idx1-ubyte"])
        return images[:, None], labels.to(torch.int64)

    return Arrays(*part("train"), *part("t10k"))


def idx(content: bytes) -> Tensor:
    """One IDX file of unsigned bytes: uint8 of the shape that its header gives."""
    if content[:3] != b"\x00\x00\x08":
        raise ValueError("it does not begin as an IDX file of bytes does")
    dimensions = content[3]
    shape = np.frombuffer(content, ">i4", count=dimensions, offset=4).tolist()
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def cifar_binary(files: Mapping[str, bytes]) -> Arrays:
    """CIFAR's binary version: records of one label byte (CIFAR-100: coarse, then fine) and the pixels."""

    def part(names: list[str], label_bytes: int) -> tuple[Tensor, Tensor]:
        content = b"".join(files[name] for name in names)
        records = np.frombuffer(content, np.uint8).reshape(-1, label_bytes + PIXELS)
        return _images(records[:, label_bytes:]), torch.from_numpy(records[:, label_bytes - 1].astype(np.int64))

    if "train.bin" in files:
        return Arrays(*part(["train.bin"], 2), *part(["test.bin"], 2))
    return Arrays(
        *part(sorted(name for name in files if name.startswith("data_batch")), 1), *part(["test_batch.bin"], 1)
    )


def cifar_python(files: Mapping[str, bytes]) -> Arrays:
    """CIFAR's python version: pickled dictionaries of `data` [n, 3072] and `labels` (CIFAR-100: `fine_labels`)."""

    def part(names: list[str]) -> tuple[Tensor, Tensor]:
        batches = [_PlainUnpickler(io.BytesIO(files[name]), encoding="bytes").load() for name in names]
        key = b"fine_labels" if b"fine_labels" in batches[0] else b"labels"
        labels = [label for batch in batches for label in batch[key]]
        return _images(np.concatenate([batch[b"data"].array() for batch in batches])), torch.tensor(labels)

    if "train" in files:
        return Arrays(*part(["train"]), *part(["test"]))
    return Arrays(*part(sorted(name for name in files if name.startswith("data_batch"))), *part(["test_batch"]))


def _images(flat: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
    return torch.from_numpy(flat.reshape(-1, 3, SIDE, SIDE).copy())


class _PickledArray:
    """Stands in for a pickled uint8 array: what the pickle would call NumPy for is kept here as plain bytes."""

    shape: tuple[int, ...]
    raw: bytes

    def __init__(self, *_: object) -> None: ...

    def __setstate__(self, state: tuple[int, tuple[int, ...], "_PickledType", bool, bytes]) -> None:
        _, self.shape, kind, by_columns, self.raw = state
        if kind.code != b"u1" or by_columns:
            raise pickle.UnpicklingError("it holds an array that is not of plain bytes")

    def array(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.frombuffer(self.raw, np.uint8).reshape(self.shape)


class _PickledType:
    """Stands in for a pickled dtype."""

    def __init__(self, code: bytes, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None: ...


class _PlainUnpickler(pickle.Unpickler):
    """Reads CIFAR's pickles and runs nothing: the three names that a NumPy array needs are stood in for."""

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case ("numpy.core.multiarray", "_reconstruct"):
                return _PickledArray
            case ("numpy", "ndarray"):
                return _PickledArray
            case ("numpy", "dtype"):
                return _PickledType
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no CIFAR file does")
