"""One's own data: every way in, what is kept as it is, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from ccfed import data


def arrays(x_shape=(3,), dtype=np.float32, n=(20, 8)):
    random = np.random.default_rng(0)
    return [
        each
        for size in n
        for each in ((random.normal(size=(size, *x_shape)) * 50 + 100).astype(dtype), random.integers(0, 4, size))
    ]


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor, lambda array: array.tolist()])
def test_arrays_tensors_and_lists_give_the_same(make) -> None:
    plain = arrays()
    made = data.from_arrays(*map(make, plain))
    assert torch.equal(made.train_x, torch.from_numpy(plain[0]))
    assert torch.equal(made.test_x, torch.from_numpy(plain[2]))
    assert made.train_y.tolist() == plain[1].tolist()
    assert made.test_y.tolist() == plain[3].tolist()
    assert made.classes == ("0", "1", "2", "3")
    assert torch.equal(made.inputs.prepare(made.train_x), made.train_x)


def test_the_users_arrays_are_copied() -> None:
    plain = arrays()
    made = data.from_arrays(*plain)
    plain[0][:] = 0
    plain[1][:] = 0
    assert float(made.train_x.abs().min()) > 0
    assert int(made.train_y.max()) > 0


@pytest.mark.parametrize(
    ("dtype", "shape", "stored", "stored_shape"),
    [
        (np.uint8, (6, 7), torch.uint8, (1, 6, 7)),
        (np.uint8, (6, 7, 3), torch.uint8, (3, 6, 7)),
        (np.uint8, (6, 7, 1), torch.uint8, (1, 6, 7)),
        (np.uint8, (3, 6, 7), torch.uint8, (3, 6, 7)),
        (np.uint8, (9,), torch.uint8, (9,)),
        (np.int32, (9,), torch.int64, (9,)),
        (np.int64, (5, 2), torch.int64, (5, 2)),
        (np.float64, (9,), torch.float32, (9,)),
        (np.float16, (2, 6, 7), torch.float32, (2, 6, 7)),
        (np.bool_, (9,), torch.uint8, (9,)),
    ],
)
def test_samples_are_stored_as_documented(dtype, shape, stored, stored_shape) -> None:
    made = data.from_arrays(*arrays(shape, dtype))
    assert made.train_x.dtype == made.test_x.dtype == stored
    assert made.sample_shape == stored_shape


def test_numbers_that_numpy_does_not_know_are_read() -> None:
    x = torch.rand(20, 3).to(torch.bfloat16)
    made = data.from_arrays(x, arrays()[1], x[:8], arrays()[3])
    assert torch.equal(made.train_x, x.float())


def test_channels_keep_their_pixels() -> None:
    images = np.random.default_rng(0).integers(0, 256, (4, 6, 7, 3), dtype=np.uint8)
    made = data.from_arrays(images, [0, 1, 0, 1], images, [0, 1, 0, 1])
    assert (made.train_x[2, 1].numpy() == images[2, :, :, 1]).all()
    prepared = made.inputs.prepare(made.train_x)
    assert float(prepared.min()) >= -1.0
    assert float(prepared.max()) <= 1.0


def test_words_become_labels_with_names() -> None:
    made = data.from_arrays(np.zeros((3, 2)), ["dog", "cat", "dog"], np.zeros((1, 2)), ["bird"])
    assert made.classes == ("bird", "cat", "dog")
    assert made.train_y.tolist() == [2, 1, 2]
    assert made.test_y.tolist() == [0]


def test_names_of_classes_may_be_anything() -> None:
    made = data.from_arrays(*arrays(), classes=range(10, 15))
    assert made.classes == ("10", "11", "12", "13", "14")
    assert "14" in str(made.split(data.iid(), clients=2).describe())


def test_words_in_a_column_of_objects_are_words() -> None:
    words = np.array(["dog", "cat", "dog"], dtype=object)  # as pandas keeps them
    made = data.from_arrays(np.zeros((3, 2)), words, np.zeros((3, 2)), words)
    assert made.classes == ("cat", "dog")
    assert made.train_y.tolist() == [1, 0, 1]


def test_a_made_up_text_task_is_split_like_any_other() -> None:
    tokens = np.random.default_rng(0).integers(0, 1000, (200, 12))
    made = data.from_arrays(tokens, np.arange(200) % 5, tokens[:50], np.arange(50) % 5, name="text")
    federation = made.split(data.mixed(0.0), clients=5)
    assert federation.sizes.tolist() == [40] * 5
    assert [made.train_y[federation.parts[i]].unique().tolist() for i in range(5)] == [[0], [1], [2], [3], [4]]
    assert made.inputs.prepare(made.train_x).dtype == torch.int64


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_x": np.zeros((20, 4))}, "train_x has samples of shape [4] and test_x of shape [3]"),
        ({"train_x": np.zeros((20, 3), np.int64)}, "torch.int64"),
        ({"train_x": np.full((20, 3), np.nan)}, "NaN"),
        ({"train_x": np.full((20, 3), "a")}, "token ids"),
        ({"train_x": np.zeros((0, 3))}, "train_x is empty"),
        ({"train_x": [[1.0], [1.0, 2.0]]}, "rows of different lengths"),
        ({"train_y": np.zeros(19, int)}, "train_y has shape [19] for 20 samples"),
        ({"train_y": np.zeros((20, 2), int)}, "one label a sample"),
        ({"train_y": np.full(20, -1)}, "from 0 upwards"),
        ({"train_y": np.full(20, 0.5)}, "whole numbers"),
        ({"train_y": np.full(20, np.nan)}, "whole numbers"),
        ({"classes": ("a", "b")}, "0 to 1"),
        ({"classes": (1, 2, 3, 4, 1)}, "classes has a name twice among its 5"),
        ({"test_y": ["b"] * 8}, "train_y is of type int64 and test_y of type <U1: they must be alike"),
        ({"train_y": ["a"] * 20, "test_y": ["b"] * 8, "classes": ("a", "c")}, "'b'"),
        ({"train_y": np.full(20, 10**7)}, "labels go up to 10000000, but only 5 different ones occur"),
        ({"inputs": data.Inputs(mean=(np.nan,))}, "each must be a finite number"),
        ({"inputs": data.Inputs(mean=(0.1, 0.2))}, "channels"),
        ({"inputs": data.Inputs(flip=True)}, "no images"),
        ({"inputs": data.Inputs(mean=(0.1, 0.2), std=(1.0, 1.0, 1.0))}, "2 means and 3 deviations"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(changes, words) -> None:
    given = dict(zip(("train_x", "train_y", "test_x", "test_y"), arrays(), strict=True)) | changes
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        data.from_arrays(given.pop("train_x"), given.pop("train_y"), given.pop("test_x"), given.pop("test_y"), **given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_npz_gives_back_what_was_saved(tmp_path: Path) -> None:
    x, y, test_x, test_y = arrays((3, 6, 7), np.uint8)
    path = tmp_path / "mine.npz"
    np.savez(
        path, train_x=x, train_y=y, test_x=test_x, test_y=test_y, classes=["a", "b", "c", "d"],
        scale=1 / 255, mean=[0.1, 0.2, 0.3], std=0.5,
    )  # fmt: skip
    for made in (data.from_npz(path), data.load(str(path)), data.load(path)):
        assert made.name == "mine"
        assert (made.train_x.numpy() == x).all()
        assert made.test_y.tolist() == test_y.tolist()
        assert made.classes == ("a", "b", "c", "d")
        assert made.inputs == data.Inputs(scale=1 / 255, mean=(0.1, 0.2, 0.3), std=(0.5,))


def test_bad_npz_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.npz does not exist"):
        data.load(str(tmp_path / "none.npz"))
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.npz cannot be read"):
        data.from_npz(tmp_path / "text.npz")
    (tmp_path / "empty.npz").write_bytes(b"")
    with pytest.raises(ValueError, match=r"empty\.npz cannot be read"):
        data.from_npz(tmp_path / "empty.npz")
    np.savez(tmp_path / "half.npz", train_x=np.zeros(3), train_y=np.zeros(3))
    with pytest.raises(ValueError, match="lacks test_x, test_y"):
        data.from_npz(tmp_path / "half.npz")
    x, y, test_x, test_y = arrays()
    for wrong, words in (
        ({"scale": [1.0, 2.0]}, "has 2 numbers as its scale"),
        ({"mean": "much"}, "has no numbers as its mean"),
        ({"classes": "one"}, "labels from 0 to 3"),
    ):
        np.savez(tmp_path / "odd.npz", train_x=x, train_y=y, test_x=test_x, test_y=test_y, **wrong)
        with pytest.raises(ValueError, match=words):
            data.from_npz(tmp_path / "odd.npz")
    np.savez(tmp_path / "objects.npz", train_x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="cannot be read"):
        data.from_npz(tmp_path / "objects.npz")
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "array.npy").rename(tmp_path / "array.npz")
    with pytest.raises(ValueError, match=r"array\.npz cannot be read"):
        data.from_npz(tmp_path / "array.npz")


class Squares(Dataset):  # type: ignore[type-arg]
    """A torch data set that computes its items."""

    classes = ("even", "odd")

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([place, place * place], dtype=torch.float32), place % 2


def test_torch_data_sets_are_read_item_by_item() -> None:
    made = data.from_torch(Squares(9), Squares(4))
    assert made.train_x[:3].tolist() == [[0, 0], [1, 1], [2, 4]]
    assert made.train_y.tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert made.classes == ("even", "odd")
    x, y = made.train_x, made.train_y
    same = data.from_torch(TensorDataset(x, y), TensorDataset(x[:4], y[:4]))
    assert torch.equal(same.train_x, x)
    assert torch.equal(same.test_y, y[:4])


def test_torch_data_sets_of_uneven_samples_are_refused() -> None:
    uneven = [(torch.zeros(2), 0), (torch.zeros(3), 1)]
    with pytest.raises(ValueError, match=r"different shapes, \[2\] and \[3\]"):
        data.from_torch(uneven, uneven)


def hugging_face():
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    features = datasets.Features(
        {"img": datasets.Image(), "tokens": datasets.List(datasets.Value("int32"), 3),
         "label": datasets.ClassLabel(names=["cat", "dog"])}
    )  # fmt: skip
    images = np.random.default_rng(0).integers(0, 256, (10, 6, 7, 3), dtype=np.uint8)
    rows = {"img": list(images), "tokens": [[i, i + 1, 70000] for i in range(10)], "label": [0, 1] * 5}
    part = datasets.Dataset.from_dict(rows, features=features)
    return datasets.DatasetDict({"train": part, "test": part.select(range(4))}), images


def test_hugging_face_images_and_tokens() -> None:
    both, images = hugging_face()
    made = data.from_hugging_face(both, x="img")
    assert (made.train_x.numpy() == images.transpose(0, 3, 1, 2)).all()
    assert made.test_x.shape == (4, 3, 6, 7)
    assert made.train_y.tolist() == [0, 1] * 5
    assert made.classes == ("cat", "dog")
    text = data.from_hugging_face((both["train"], both["test"]), x="tokens")
    assert text.train_x.dtype == torch.int64
    assert text.train_x[4].tolist() == [4, 5, 70000]
    with pytest.raises(ValueError, match="no column 'image': it has img, tokens, label"):
        data.from_hugging_face(both)
    with pytest.raises(ValueError, match="'train' and 'test'"):
        data.from_hugging_face({"train": both["train"]}, x="img")
    with pytest.raises(ValueError, match="the data set is one part"):
        data.from_hugging_face(both["train"], x="img")


def test_several_columns_of_a_hugging_face_table_are_features() -> None:
    datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")
    rows = {"age": [30, 40, 50], "income": [1.5, 2.5, 0.5], "buys": ["yes", "no", "yes"]}
    table = datasets.Dataset.from_dict(rows)
    made = data.from_hugging_face((table, table), x=["age", "income"], y="buys")
    assert made.train_x.tolist() == [[30, 1.5], [40, 2.5], [50, 0.5]]
    assert made.classes == ("no", "yes")
    with pytest.raises(ValueError, match="no column 'weight': it has age, income, buys"):
        data.from_hugging_face((table, table), x=["age", "weight"], y="buys")


def test_flowers_partitioners_are_splits() -> None:
    partitioners = pytest.importorskip("flwr_datasets.partitioner", reason="the extra 'datasets' is not installed")
    digits = data.load("digits")
    pathological = partitioners.PathologicalPartitioner(
        10, partition_by="label", num_classes_per_partition=2, class_assignment_mode="deterministic"
    )
    federation = digits.split(data.flower_partitioner(pathological), clients=10)
    assert federation.describe().classes_held.tolist() == [2] * 10
    assert federation.split_name == "PathologicalPartitioner"
    users = np.arange(1437) % 7
    natural = partitioners.NaturalIdPartitioner(partition_by="user")
    federation = digits.split(data.flower_partitioner(natural, columns={"user": users.tolist()}), clients=7)
    assert [set(users[federation.parts[i]]) for i in range(7)] == [{i} for i in range(7)]
    with pytest.raises(ValueError, match="--clients 5 does not fit the partitioner, which makes 10 parts"):
        digits.split(data.flower_partitioner(pathological), clients=5)


def test_synthetic_data_can_be_learned_and_extended() -> None:
    small, large = data.synthetic(500, seed=3), data.synthetic(70_000, seed=3)
    assert torch.equal(large.train_x[:500], small.train_x)
    assert torch.equal(large.train_y[:500], small.train_y)
    assert torch.equal(large.test_x, small.test_x)
    assert not torch.equal(data.synthetic(500, seed=4).train_x, small.train_x)
    centres = torch.stack([large.train_x[large.train_y == label].mean(0) for label in range(10)])
    nearest = torch.cdist(large.test_x, centres).argmin(1)
    assert 0.7 < float((nearest == large.test_y).double().mean()) < 1.0
    with pytest.raises(ValueError, match="features=0"):
        data.synthetic(10, features=0)


class Endless(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(3), 0)])


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([{"image": 1, "label": 2, "id": 3}], "must be pairs (sample, label), but the first is a dict of 3"),
        ([(1, 2, 3)], "the first is a tuple of 3"),
        ([torch.zeros(2)], "the first is a Tensor"),
        (Endless(), "does not say how many items it has"),
        ([], "train_x is empty"),
    ],
)
def test_torch_data_sets_of_anything_but_pairs_are_refused(items, words) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        data.from_torch(items, items)
    assert words in str(caught.value)
