"""Original files: found in the right order, decoded, and refused by name when anything is wrong with them."""

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from ccfed import data
from ccfed.data import formats, sources, status
from ccfed.data.originals import ORIGINALS

REAL_DATA = os.environ.get("CCFED_DATA")
DEBIAN = Path("/usr/share/datasets/fashion-mnist")


def load(small, tmp_path, data_dir=None):
    return data.load(
        small.original.name, data_dir, cache=tmp_path / "cache", originals={small.original.name: small.original}
    )


def assert_is(loaded: data.Dataset, small) -> None:
    for x, y, (images, labels) in (
        (loaded.train_x, loaded.train_y, small.train),
        (loaded.test_x, loaded.test_y, small.test),
    ):
        assert x.dtype == torch.uint8
        assert np.array_equal(x.numpy(), images)
        assert y.dtype == torch.int64
        assert np.array_equal(y.numpy(), labels)


def test_digits_are_the_real_ones() -> None:
    digits = data.load("digits")
    assert digits.train_x.shape == (1437, 1, 8, 8)
    assert digits.test_x.shape == (360, 1, 8, 8)
    assert digits.train_x.dtype == torch.uint8
    assert digits.train_y.dtype == torch.int64
    # Counts and pixel sum of the 1797 images of the source.
    counts = digits.train_y.bincount() + digits.test_y.bincount()
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert int(digits.train_x.sum()) + int(digits.test_x.sum()) == 561718
    assert digits.test_y.bincount().tolist() == [36] * 10
    inputs = digits.inputs.prepare(digits.train_x)
    assert abs(float(inputs.mean())) < 0.01
    assert float(inputs.std()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("form", ["zipped", "plain", "zipped anew", "directly"])
def test_idx_files_are_found_in_every_form(form: str, small_fashion, tmp_path: Path) -> None:
    folder = small_fashion.write(tmp_path, "fashion")
    if form in ("plain", "zipped anew"):
        for path in folder.iterdir():
            content = gzip.decompress(path.read_bytes())
            path.unlink()
            path.with_suffix("").write_bytes(content)
            if form == "zipped anew":
                path.with_suffix("").unlink()
                path.write_bytes(gzip.compress(content, compresslevel=1))
    assert_is(load(small_fashion, tmp_path, folder if form == "directly" else tmp_path), small_fashion)


@pytest.mark.parametrize("version", ["cifar-bin", "cifar-py"])
@pytest.mark.parametrize("form", ["folder", "directly", "archive"])
def test_cifar_is_found_in_every_form(version: str, form: str, small_cifar, tmp_path: Path) -> None:
    place = tmp_path
    if form == "archive":
        small_cifar.archive(tmp_path / f"{version}.tar.gz", version)
    else:
        folder = small_cifar.write(tmp_path, version)
        place = folder if form == "directly" else tmp_path
    assert_is(load(small_cifar, tmp_path, place), small_cifar)


def test_the_folder_may_be_named_by_the_environment(small_cifar, tmp_path, monkeypatch) -> None:
    small_cifar.write(tmp_path / "here", "cifar-bin")
    monkeypatch.setenv("CCFED_DATA", str(tmp_path / "here"))
    assert_is(load(small_cifar, tmp_path), small_cifar)


def test_places_are_looked_through_in_order(small_fashion, tmp_path, monkeypatch) -> None:
    system, cache = tmp_path / "system", tmp_path / "cache"
    original = sources.Original(**{**vars(small_fashion.original), "system_folders": (str(system),)})
    small_fashion.write(cache / "fashion", "fashion")
    assert sources.locate(original, cache=cache).place == cache / "fashion" / "fashion"
    small_fashion.write(system, "fashion")
    assert sources.locate(original, cache=cache).place == system / "fashion"
    monkeypatch.setenv("CCFED_DATA", str(tmp_path / "named"))
    small_fashion.write(tmp_path / "named", "fashion")
    assert sources.locate(original, cache=cache).place == tmp_path / "named" / "fashion"
    small_fashion.write(tmp_path / "option", "fashion")
    assert sources.locate(original, tmp_path / "option", cache).place == tmp_path / "option" / "fashion"
    # An incomplete place does not count.
    next((tmp_path / "option" / "fashion").iterdir()).unlink()
    assert sources.locate(original, tmp_path / "option", cache).place == system / "fashion"


def change(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "altered":
        path.write_bytes(content[:-30] + bytes([content[-30] ^ 1]) + content[-29:])
    elif how == "wrong":
        path.write_bytes(
            gzip.compress(b"\x00\x00\x08\x01\x00\x00\x00\x02\x01\x02") if path.suffix == ".gz" else b"hello"
        )


@pytest.mark.parametrize("how", ["truncated", "empty", "altered", "wrong"])
def test_a_damaged_idx_file_is_named_and_refused(how: str, small_fashion, tmp_path: Path) -> None:
    folder = small_fashion.write(tmp_path, "fashion")
    change(folder / "train-labels-idx1-ubyte.gz", how)
    with pytest.raises(ValueError, match=r"fashion/train-labels-idx1-ubyte\.gz ") as caught:
        load(small_fashion, tmp_path, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("how", ["truncated", "empty", "altered", "wrong"])
@pytest.mark.parametrize("version", ["cifar-bin", "cifar-py"])
def test_a_damaged_cifar_file_is_named_and_refused(how: str, version: str, small_cifar, tmp_path: Path) -> None:
    folder = small_cifar.write(tmp_path, version)
    path = sorted(folder.glob("test*"))[0]
    change(path, how)
    with pytest.raises(ValueError, match=f"{version}/{path.name} is not an original file of Small CIFAR"):
        load(small_cifar, tmp_path, tmp_path)


@pytest.mark.parametrize("how", ["truncated", "empty", "altered", "wrong"])
def test_a_damaged_archive_is_named_and_refused(how: str, small_cifar, tmp_path: Path) -> None:
    path = small_cifar.archive(tmp_path / "cifar-py.tar.gz", "cifar-py")
    change(path, how)
    with pytest.raises(ValueError, match=r"cifar-py\.tar\.gz"):
        load(small_cifar, tmp_path, tmp_path)


def test_an_archive_without_a_file_is_refused(small_cifar, tmp_path: Path) -> None:
    missing = sorted(small_cifar.files["cifar-bin"])[0]
    del small_cifar.files["cifar-bin"][missing]
    small_cifar.archive(tmp_path / "cifar-bin.tar.gz", "cifar-bin")
    with pytest.raises(ValueError, match=f"lacks {missing}"):
        load(small_cifar, tmp_path, tmp_path)


def test_a_pickle_that_wants_to_run_something_is_refused() -> None:
    harmful = b"cos\nsystem\nU\x04echo\x85R."
    with pytest.raises(Exception, match=r"it asks for os\.system"):
        formats.cifar_python({"train": harmful, "test": harmful})


@pytest.mark.parametrize("name", ["fmnis", "cifar", "mnist", "", "digits.np"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"--data '{name}' is unknown.*choose digits, synthetic, fmnist, cifar10, cifar100"
    ) as caught:
        data.load(name)
    assert ("did you mean fmnist?" in str(caught.value)) == (name in ("fmnis", "mnist"))


def test_a_folder_that_is_none_is_refused(tmp_path, monkeypatch) -> None:
    with pytest.raises(ValueError, match=r"--data-dir .*nowhere is no folder"):
        data.load("fmnist", tmp_path / "nowhere")
    monkeypatch.setenv("CCFED_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"\$CCFED_DATA .*nowhere is no folder"):
        data.load("fmnist")


def test_the_list_says_what_is_there(small_fashion, small_cifar, tmp_path: Path) -> None:
    originals = {small.original.name: small.original for small in (small_fashion, small_cifar)}

    def rows() -> dict[str, status.Status]:
        return {row.name: row for row in status.list_all(tmp_path, cache=tmp_path / "cache", originals=originals)}

    assert {name: row.state for name, row in rows().items()} == {
        "digits": "embedded",
        "fashion": "missing",
        "cifar": "missing",
    }
    assert "ccfed data get fashion" in rows()["fashion"].note
    folder = small_fashion.write(tmp_path, "fashion")
    assert rows()["fashion"].state == "there"
    assert rows()["fashion"].place == str(folder)
    assert rows()["fashion"].size == sum(len(content) for content in small_fashion.files["fashion"].values())
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    assert rows()["fashion"].state == "incomplete"
    assert "t10k-labels-idx1-ubyte" in rows()["fashion"].note


def test_check_reads_every_byte(small_cifar, tmp_path: Path) -> None:
    settings = {"cache": tmp_path / "cache", "originals": {"cifar": small_cifar.original}}
    assert status.check("cifar", tmp_path, **settings).state == "missing"
    folder = small_cifar.write(tmp_path, "cifar-bin")
    assert status.check("cifar", tmp_path, **settings).state == "checked"
    change(sorted(folder.iterdir())[0], "altered")
    assert status.list_all(tmp_path, **settings)[1].state == "there"
    with pytest.raises(ValueError, match="is not an original file"):
        status.check("cifar", tmp_path, **settings)
    with pytest.raises(ValueError, match="'cifer' is unknown"):
        status.check("cifer", tmp_path, **settings)
    assert status.check("digits").state == status.get("digits").state == "embedded"


def test_a_damaged_file_of_the_cache_says_how_to_replace_it(small_cifar, tmp_path: Path) -> None:
    folder = small_cifar.write(tmp_path / "cache" / "cifar", "cifar-bin")
    change(sorted(folder.iterdir())[0], "altered")
    with pytest.raises(ValueError, match="`ccfed data get cifar` fetches it anew"):
        load(small_cifar, tmp_path)


@pytest.mark.skipif(not DEBIAN.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_fashion_mnist_of_debians_package(tmp_path: Path) -> None:
    fashion = data.load("fmnist", cache=tmp_path)
    assert fashion.train_x.shape == (60000, 1, 28, 28)
    assert fashion.test_x.shape == (10000, 1, 28, 28)
    assert fashion.train_y.bincount().tolist() == [6000] * 10
    assert [fashion.classes[label] for label in fashion.train_y[:3]] == ["Ankle boot", "T-shirt/top", "T-shirt/top"]
    inputs = fashion.inputs.prepare(fashion.train_x[:1000])
    assert (float(inputs.min()), float(inputs.max())) == (-1.0, 1.0)
    assert not fashion.inputs.augments


@pytest.mark.parametrize(
    ("name", "md5"),
    [
        ("cifar10", ("17e2cb5a4119d89a4a13e02b91701bff", "6d2714505047e13831cd876923568712")),
        ("cifar100", ("111db26282d380128f3126515677de38", "f56c971f508f38ef6f45ff5a2db65ea6")),
    ],
)
def test_cifar_of_the_data_folder(name: str, md5: tuple[str, str], tmp_path: Path) -> None:
    """The pixels [n, row, column, channel] of the original images, whichever version the folder holds."""
    if not REAL_DATA or not sources.locate(ORIGINALS[name], REAL_DATA, tmp_path):
        pytest.skip(f"$CCFED_DATA names no folder with the files of {name}")
    cifar = data.load(name, REAL_DATA, cache=tmp_path)
    for images, expected in zip((cifar.train_x, cifar.test_x), md5, strict=True):
        assert hashlib.md5(images.permute(0, 2, 3, 1).contiguous().numpy().tobytes()).hexdigest() == expected
    classes = len(cifar.classes)
    assert cifar.train_y.bincount().tolist() == [50000 // classes] * classes
    assert cifar.test_y.bincount().tolist() == [10000 // classes] * classes
    assert cifar.inputs.augments
