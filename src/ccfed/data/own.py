"""Data of one's own: arrays, an .npz file, torch data sets, Hugging Face data sets, Flower's partitioners."""

import math
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ccfed.data.dataset import Dataset
from ccfed.data.inputs import Inputs

IMAGES = Inputs(scale=1 / 255, mean=(0.5,), std=(0.5,))
"""What uint8 samples go through unless told otherwise: 0..255 becomes -1..1."""
INPUTS = {"scale": 1.0, "mean": 0.0, "std": 1.0}
"""What an .npz file may say of the way to its inputs, and what holds of the rest if it says only some of it."""


def from_arrays(
    train_x: Any,
    train_y: Any,
    test_x: Any,
    test_y: Any,
    *,
    name: str = "own",
    classes: Sequence[str] | None = None,
    inputs: Inputs | None = None,
) -> Dataset:
    """A data set from NumPy arrays, torch tensors or nested lists; samples first, one label a sample.

    uint8 samples of more than one dimension are images, [n, H, W], [n, C, H, W] or [n, H, W, 1, 3 or 4], and kept as
    [n, C, H, W]; all other integers become int64 (token ids), floats become float32, both in the shape they have.
    Labels are numbers from 0 upwards, or words, whose sorted list then names the classes. `inputs` says how samples
    become the model's input: unless given, uint8 is scaled to -1..1 and everything else is taken as it is.
    """
    train, test = _samples("train_x", train_x), _samples("test_x", test_x)
    if train.shape[1:] != test.shape[1:]:
        raise ValueError(
            f"train_x has samples of shape {list(train.shape[1:])} and test_x of shape {list(test.shape[1:])}: "
            "they must be alike"
        )
    if train.dtype != test.dtype:
        raise ValueError(f"train_x is {train.dtype} and test_x is {test.dtype} once read: they must be alike")
    raw_train, raw_test = _array("train_y", train_y), _array("test_y", test_y)
    words = [raw.dtype.kind in "US" for raw in (raw_train, raw_test)]
    if classes is None and words[0] != words[1]:
        raise ValueError(
            f"train_y is of type {raw_train.dtype} and test_y of type {raw_test.dtype}: they must be alike"
        )
    if classes is None and words[0]:
        classes = sorted({str(word) for word in np.concatenate([raw_train, raw_test])})
    if classes is not None:
        classes = [str(word) for word in classes]
        if len(set(classes)) < len(classes):
            raise ValueError(f"classes has a name twice among its {len(classes)}: give each class a name of its own")
    labels = [
        _labels(which, raw, classes, len(x))
        for which, raw, x in (("train_y", raw_train, train), ("test_y", raw_test, test))
    ]
    names = tuple(classes) if classes is not None else _numbered(labels)
    if inputs is None:
        inputs = IMAGES if train.dtype == torch.uint8 else Inputs()
    _check_inputs(inputs, train)
    return Dataset(name, train, labels[0], test, labels[1], names, inputs)


def from_npz(path: str | Path) -> Dataset:
    """A data set from an .npz file with the arrays `train_x`, `train_y`, `test_x` and `test_y` of `from_arrays`.

    Optional arrays: `classes` (names), `scale` (a number), `mean` and `std` (one number, or one a channel).
    """
    path = Path(path).expanduser()
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except FileNotFoundError:
        raise ValueError(f"--data {path} does not exist: give a data set's name or the path of an .npz file") from None
    except (OSError, ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"--data {path} cannot be read as an .npz file of plain arrays ({error})") from None
    needed = ("train_x", "train_y", "test_x", "test_y")
    missing = [key for key in needed if key not in arrays]
    if missing:
        raise ValueError(f"--data {path} lacks {', '.join(missing)}: an .npz file needs {', '.join(needed)}")
    inputs = None
    if INPUTS.keys() & arrays.keys():
        scale, mean, std = (_floats(path, arrays, name, default) for name, default in INPUTS.items())
        if len(scale) != 1:
            raise ValueError(f"--data {path} has {len(scale)} numbers as its scale: give one")
        inputs = Inputs(scale[0], mean, std)
    classes = np.atleast_1d(arrays["classes"]).astype(np.str_).tolist() if "classes" in arrays else None
    return from_arrays(*(arrays[key] for key in needed), name=path.stem, classes=classes, inputs=inputs)


def _floats(path: Path, arrays: Mapping[str, Any], name: str, default: float) -> tuple[float, ...]:
    try:
        return tuple(np.atleast_1d(arrays.get(name, default)).astype(float).flatten().tolist())
    except ValueError:
        raise ValueError(f"--data {path} has no numbers as its {name}") from None


def from_torch(
    train: Any, test: Any, *, name: str = "own", classes: Sequence[str] | None = None, inputs: Inputs | None = None
) -> Dataset:
    """A data set from two torch `Dataset`s whose items are (sample, label); samples must all have one shape.

    Every item is read once, so leave random augmentation out of the data set's transform: `inputs` does it per batch.
    """
    if classes is None:
        classes = getattr(train, "classes", None)
    arrays = [column for which in (train, test) for column in _columns(which)]
    return from_arrays(*arrays, name=name, classes=classes, inputs=inputs)


def from_hugging_face(
    data: Any,
    *,
    x: str | Sequence[str] = "image",
    y: str = "label",
    name: str = "own",
    inputs: Inputs | None = None,
) -> Dataset:
    """A data set from a Hugging Face `DatasetDict` with the parts "train" and "test", or from a (train, test) pair.

    `x` and `y` are the columns of the samples (images, or lists of numbers of one length) and of their labels. Several
    columns of numbers, `x=["age", "income"]`, are the features of a table.
    """
    if isinstance(data, Mapping):
        if "train" not in data or "test" not in data:
            raise ValueError(
                f"the data set has the parts {', '.join(data)}: from_hugging_face needs 'train' and 'test'"
            )
        pair = data["train"], data["test"]
    elif hasattr(data, "column_names"):
        raise ValueError("the data set is one part: data.train_test_split(test_size=0.2) makes the two that are needed")
    else:
        pair = tuple(data)
        if len(pair) != 2:
            raise ValueError(f"from_hugging_face takes a DatasetDict or a (train, test) pair, not {len(pair)} parts")
    arrays = []
    for part in pair:
        for column in (*([x] if isinstance(x, str) else x), y):
            if column not in part.column_names:
                raise ValueError(
                    f"the data set has no column {column!r}: it has {', '.join(part.column_names)}; "
                    "say which ones with x= and y="
                )
        if isinstance(x, str):
            samples = _stack([np.asarray(sample) for sample in part[x]])
        else:
            samples = np.stack([np.asarray(part[column]) for column in x], 1).astype(np.float32)
        arrays += [samples, np.asarray(part[y])]
    names = getattr(pair[0].features[y], "names", None)
    return from_arrays(*arrays, name=name, classes=names, inputs=inputs)


def _array(which: str, values: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """`values` as a NumPy array; tensors come to the host first."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()  # NumPy has no bfloat16
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{which} holds rows of different lengths: pad them to one length first") from None
    if array.ndim == 0 or len(array) == 0:
        raise ValueError(f"{which} is empty: at least one sample is needed")
    if array.dtype.kind == "O" and all(isinstance(each, str) for each in array.flat):
        return array.astype(np.str_)  # a column of words, as pandas keeps it
    return array


def _samples(which: str, values: Any) -> Tensor:
    """Samples as the tensor that is stored: uint8 [n, C, H, W] images, int64 or float32."""
    array = _array(which, values)
    kind = array.dtype.kind
    if array.dtype == np.uint8 and array.ndim > 2:
        if array.ndim == 3:
            array = array[:, None]
        elif array.ndim == 4 and array.shape[-1] in (1, 3, 4) and array.shape[1] not in (1, 3, 4):
            array = np.moveaxis(array, -1, 1)
    elif kind in "iu" and array.dtype != np.uint8:
        array = array.astype(np.int64)
    elif kind == "f":
        array = array.astype(np.float32)
        if not np.isfinite(array).all():
            raise ValueError(f"{which} holds NaN or infinite values: clean it first")
    elif kind == "b":
        array = array.astype(np.uint8)
    elif array.dtype != np.uint8:
        raise ValueError(f"{which} is of type {array.dtype}: samples are numbers (token ids for text)")
    return torch.from_numpy(np.array(array, order="C"))


def _labels(which: str, array: np.ndarray[Any, Any], classes: Sequence[str] | None, samples: int) -> Tensor:
    """Labels as int64 [n], checked against the number of samples and the classes."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (samples,):
        raise ValueError(f"{which} has shape {list(array.shape)} for {samples} samples: give one label a sample")
    if array.dtype.kind in "US":
        number = {str(word): place for place, word in enumerate(classes or ())}
        unknown = sorted({str(word) for word in array} - number.keys())
        if unknown:
            raise ValueError(f"{which} has the label {unknown[0]!r}, which is none of the {len(number)} classes")
        return torch.tensor([number[str(word)] for word in array], dtype=torch.int64)
    whole = array.astype(np.int64) if array.dtype.kind in "iubf" and np.isfinite(array).all() else None
    if whole is None or not np.array_equal(whole, array):
        raise ValueError(f"{which} is of type {array.dtype}: labels are whole numbers from 0 upwards, or words")
    top = int(whole.max())
    if int(whole.min()) < 0 or (classes is not None and top >= len(classes)):
        allowed = "from 0 upwards" if classes is None else f"0 to {len(classes) - 1}, one a class"
        raise ValueError(f"{which} has labels from {int(whole.min())} to {top}: allowed are {allowed}")
    return torch.from_numpy(whole)


def _numbered(labels: Sequence[Tensor]) -> tuple[str, ...]:
    """Classes named by their numbers, unless these are obviously no class numbers."""
    found = torch.cat(list(labels))
    top = int(found.max())
    if top >= max(len(found), 1000):
        raise ValueError(
            f"labels go up to {top}, but only {len(found.unique())} different ones occur: number them from 0 upwards "
            "(np.unique with return_inverse=True does), or give them as words"
        )
    return tuple(str(number) for number in range(top + 1))


def _check_inputs(inputs: Inputs, samples: Tensor) -> None:
    """Refuses inputs that cannot be applied to these samples."""
    means, stds = len(inputs.mean), len(inputs.std)
    channels = max(means, stds)
    if min(means, stds) not in (1, channels):
        raise ValueError(f"inputs has {means} means and {stds} deviations: give as many of each, or one for all")
    if not all(math.isfinite(number) for number in (inputs.scale, *inputs.mean)):
        raise ValueError(
            f"inputs has the scale {inputs.scale} and the means {inputs.mean}: each must be a finite number"
        )
    if not all(0.0 < deviation < float("inf") for deviation in inputs.std):
        raise ValueError(f"inputs has the deviations {inputs.std}: each must be a finite number above 0")
    if channels > 1 and (samples.ndim != 4 or samples.shape[1] != channels):
        raise ValueError(
            f"inputs has {channels} means, but samples of shape {list(samples.shape[1:])} have not as many channels"
        )
    if inputs.augments and samples.ndim != 4:
        raise ValueError(f"inputs asks for crop or flip, but samples of shape {list(samples.shape[1:])} are no images")


def _columns(data: Any) -> tuple[Any, Any]:
    """All samples and all labels of a torch data set."""
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, tuple) and len(tensors) == 2:
        return tensors
    if not hasattr(data, "__len__"):
        raise ValueError("the data set does not say how many items it has: make a list of them first")
    pairs = [data[place] for place in range(len(data))]
    if pairs and not (isinstance(pairs[0], tuple | list) and len(pairs[0]) == 2):
        raise ValueError(f"the data set's items must be pairs (sample, label), but the first is a {_kind(pairs[0])}")
    return _stack([_item(x) for x, _ in pairs]), _stack([_item(y) for _, y in pairs])


def _kind(item: object) -> str:
    kind = type(item).__name__
    return f"{kind} of {len(item)}" if isinstance(item, tuple | list | dict) else kind


def _item(value: Any) -> np.ndarray[Any, Any]:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)


def _stack(items: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    shapes = {item.shape for item in items}
    if len(shapes) > 1:
        first, second = sorted(shapes)[:2]
        raise ValueError(f"samples have different shapes, {list(first)} and {list(second)}: bring them to one first")
    return np.stack(items) if items else np.empty(0)
