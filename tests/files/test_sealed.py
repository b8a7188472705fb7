"""Tensors and JSON come back as they were, and no altered file is taken for a good one."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from ccfed.files import Damaged, check, load, load_newest, previous_of, save

TENSORS = {
    "floats": torch.linspace(0, 1, 7),
    "doubles": torch.tensor([[1e-300, float("nan")]], dtype=torch.float64),
    "halves": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "numbers": torch.tensor([2**62, -1]),
    "flags": torch.tensor([True, False]),
    "none": torch.zeros(0, 4),
}
FACTS = {"text": '"sha256":"', "list": [1, 2.5, None], "deep": {"é": True}}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def test_tensors_and_facts_come_back_and_any_reader_of_safetensors_opens_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    checksum = save(path, TENSORS, FACTS)
    back = load(path, checksum)
    assert back.facts == FACTS
    assert back.checksum == checksum
    assert back.tensors.keys() == TENSORS.keys() == load_file(path).keys()
    assert all(same(back.tensors[name], tensor) for name, tensor in TENSORS.items())


def test_views_and_tensors_that_share_memory_come_back(tmp_path: Path) -> None:
    whole = torch.arange(12.0).view(3, 4)
    shared = {"whole": whole, "again": whole, "part": whole[1], "turned": whole.T}
    save(tmp_path / "a.safetensors", shared, {})
    back = load(tmp_path / "a.safetensors").tensors
    assert all(torch.equal(back[name], tensor) for name, tensor in shared.items())


def test_every_altered_byte_and_every_cut_is_found(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    save(path, TENSORS, FACTS)
    good = path.read_bytes()

    @given(st.integers(0, len(good) - 1), st.integers(1, 255))
    def altered(place: int, change: int) -> None:
        path.write_bytes(good[:place] + bytes([good[place] ^ change]) + good[place + 1 :])
        for reader in (load, check):
            with pytest.raises(Damaged):
                reader(path)

    @given(st.integers(0, len(good) - 1))
    def cut(length: int) -> None:
        path.write_bytes(good[:length])
        for reader in (load, check):
            with pytest.raises(Damaged):
                reader(path)

    altered()
    cut()
    path.write_bytes(good)
    check(path)
    assert load(path).facts == FACTS


def test_a_good_file_that_does_not_belong_here_is_refused(tmp_path: Path) -> None:
    checksum = save(tmp_path / "a.safetensors", TENSORS, {"round": 1})
    save(tmp_path / "a.safetensors", TENSORS, {"round": 2})
    with pytest.raises(Damaged, match="belongs here"):
        load(tmp_path / "a.safetensors", checksum)


def test_a_damaged_file_falls_back_to_the_one_before_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    said: list[str] = []
    assert load_newest(path, said.append) is None
    for number in (1, 2):
        save(path, {}, {"round": number}, keep_previous=True)
    newest = load_newest(path, said.append)
    assert newest is not None
    assert newest.facts == {"round": 2}
    assert said == []

    path.write_bytes(b"rubbish")
    before = load_newest(path, said.append)
    assert before is not None
    assert before.facts == {"round": 1}
    assert len(said) == 1
    assert str(path) in said[0]

    previous_of(path).write_bytes(b"rubbish too")
    with pytest.raises(Damaged, match=path.name):
        load_newest(path, said.append)
