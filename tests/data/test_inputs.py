"""From stored samples to inputs: against a plain reference that takes one image at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ccfed import data
from ccfed.algorithm import streams


def one_image(image: Tensor, crop: int, flip: bool, key: Tensor, slot: int) -> Tensor:
    """Pads with black, cuts out, then mirrors: the textbook order, for slot `slot` of a batch."""
    height, width = image.shape[1:]
    padded = torch.zeros(image.shape[0], height + 2 * crop, width + 2 * crop, dtype=image.dtype)
    padded[:, crop : crop + height, crop : crop + width] = image
    top = int(float(streams.uniform(key, 3 * slot)) * (2 * crop + 1))
    left = int(float(streams.uniform(key, 3 * slot + 1)) * (2 * crop + 1))
    cut = padded[:, top : top + height, left : left + width]
    return cut.flip(-1) if flip and float(streams.uniform(key, 3 * slot + 2)) < 0.5 else cut


@given(
    crop=st.integers(0, 5),
    flip=st.booleans(),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 9)),
    batch=st.integers(1, 6),
    seed=st.integers(0, 999),
    dtype=st.sampled_from([torch.uint8, torch.float32]),
)
def test_crop_and_flip_equals_the_reference(
    crop: int, flip: bool, shape: tuple[int, int, int], batch: int, seed: int, dtype: torch.dtype
) -> None:
    images = torch.randint(1, 255, (batch, *shape), generator=torch.Generator().manual_seed(seed)).to(dtype)
    key = streams.stream(seed, "augment")
    changed = data.Inputs(crop=crop, flip=flip).crop_and_flip(images, key)
    assert changed.dtype == dtype
    assert torch.equal(changed, torch.stack([one_image(x, crop, flip, key, slot) for slot, x in enumerate(images)]))


def test_augmentation_does_not_depend_on_who_shares_the_batch() -> None:
    images = torch.arange(4 * 5 * 3 * 8 * 8).view(4, 5, 3, 8, 8).to(torch.uint8)
    keys = streams.stream(0, "augment", torch.arange(4), 17)
    inputs = data.Inputs(crop=2, flip=True)
    together = inputs.crop_and_flip(images, keys)
    for client in (2, 0, 3, 1):
        assert torch.equal(together[client], inputs.crop_and_flip(images[client], keys[client]))


def test_every_shift_and_both_sides_occur_equally_often() -> None:
    image = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    image[..., 4, 2] = 1  # left of the middle, so that a flip shows
    n = 18_000
    moved = data.Inputs(crop=1, flip=True).crop_and_flip(image.expand(n, 1, 9, 9), streams.stream(1, "augment"))
    _, _, rows, columns = moved.nonzero(as_tuple=True)
    places, counts = torch.stack([rows, columns]).unique(dim=1, return_counts=True)
    expected = {(row, column) for row in (3, 4, 5) for column in (1, 2, 3, 5, 6, 7)}
    assert {tuple(place) for place in places.T.tolist()} == expected
    assert (counts - n / 18).abs().max() < 5 * (n / 18) ** 0.5


def test_no_augmentation_leaves_the_samples_alone() -> None:
    images = torch.randint(0, 255, (3, 1, 4, 4), dtype=torch.uint8)
    assert data.Inputs().crop_and_flip(images, streams.stream(0, "augment")) is images


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("mean", "std"), [((0.5,), (0.25,)), ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)), ((0.1,), (0.4, 0.5, 0.6))]
)
def test_prepare_scales_and_normalises(mean: tuple[float, ...], std: tuple[float, ...], dtype: torch.dtype) -> None:
    stored = torch.randint(0, 256, (2, 5, 3, 4, 4), dtype=torch.uint8)
    wide_mean, wide_std = (torch.tensor(each, dtype=torch.float64).expand(3).view(3, 1, 1) for each in (mean, std))
    expected = (stored.double() / 255 - wide_mean) / wide_std
    prepared = data.Inputs(scale=1 / 255, mean=mean, std=std).prepare(stored, dtype)
    assert prepared.dtype == dtype
    torch.testing.assert_close(
        prepared.double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=4 * torch.finfo(dtype).eps
    )


def test_token_ids_stay_as_they_are() -> None:
    tokens = torch.arange(12).view(3, 4)
    assert data.Inputs(scale=0.5).prepare(tokens) is tokens


@given(crop=st.integers(0, 4), flip=st.booleans())
@settings(max_examples=10)
def test_black_stays_black_before_normalisation(crop: int, flip: bool) -> None:
    """The border is black in the stored image, so normalised it is what black is, and not zero."""
    inputs = data.Inputs(scale=1 / 255, mean=(0.5,), std=(0.5,), crop=crop, flip=flip)
    white = torch.full((50, 1, 6, 6), 255, dtype=torch.uint8)
    seen = inputs.prepare(inputs.crop_and_flip(white, streams.stream(0, "augment")))
    assert set(seen.unique().tolist()) <= {-1.0, 1.0}
