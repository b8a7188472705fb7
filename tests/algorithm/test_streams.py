"""Random numbers without state: known values, independence of order, and the distributions they claim."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccfed.algorithm import streams

seeds = st.integers(-(2**70), 2**70)


def test_bits_are_splitmix64() -> None:
    """The first numbers of the generator from state 0, as published with it."""
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]
    drawn = streams.bits(torch.tensor(0), torch.arange(5))
    assert [number % 2**64 for number in drawn.tolist()] == known


@given(key=st.integers(-(2**63), 2**63 - 1), counter=st.integers(-(2**63), 2**63 - 2))
def test_plain_numbers_and_tensors_agree(key: int, counter: int) -> None:
    assert torch.equal(streams.bits(torch.tensor(key), counter), streams.bits(torch.tensor(key), torch.tensor(counter)))


@given(seed=seeds, clients=st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
def test_a_clients_key_does_not_depend_on_the_others(seed: int, clients: list[int]) -> None:
    together = streams.stream(seed, "trial", torch.tensor(clients), 3)
    alone = [streams.stream(seed, "trial", client, 3) for client in clients]
    assert torch.equal(together, torch.stack(alone))


def test_purposes_seeds_clients_and_rounds_lead_to_different_keys() -> None:
    keys = {
        int(streams.stream(seed, name, client, step))
        for seed in range(5)
        for name in ("batches", "dropout", "selection")
        for client in range(10)
        for step in range(10)
    }
    assert len(keys) == 5 * 3 * 10 * 10


def test_purpose_is_the_same_in_every_process() -> None:
    assert streams.purpose("batches") == streams.purpose("batches") != streams.purpose("batch")
    assert int(streams.stream(0, "x")) == 183157465319879989


@pytest.mark.parametrize("seed", [0, 3, -1, 2**63, -(10**30)])
def test_any_whole_number_is_a_seed(seed: int) -> None:
    assert streams.uniform(streams.stream(seed, "any"), 0).shape == ()
    if abs(seed) < 2**31:
        assert torch.equal(streams.stream(np.int64(seed), "any"), streams.stream(seed, "any"))
    with pytest.raises(TypeError):
        streams.stream(seed + 0.5, "any")  # type: ignore[arg-type]


def test_uniform_is_uniform() -> None:
    n, cells = 200_000, 100
    drawn = streams.uniform(streams.stream(1, "uniform"), torch.arange(n))
    assert drawn.dtype == torch.float64
    assert float(drawn.min()) >= 0.0
    assert float(drawn.max()) < 1.0
    counts = torch.bincount((drawn * cells).long(), minlength=cells).double()
    chi_square = float(((counts - n / cells) ** 2 / (n / cells)).sum())
    assert 40 < chi_square < 180  # 99 degrees of freedom: beyond with a chance of less than one in a million


@pytest.mark.parametrize("axis", ["neighbouring numbers", "neighbouring keys", "neighbouring seeds"])
def test_neighbours_are_uncorrelated(axis: str) -> None:
    n = 100_000
    if axis == "neighbouring numbers":
        drawn = streams.uniform(streams.stream(0, "neighbours"), torch.arange(n + 1))
    elif axis == "neighbouring keys":
        drawn = streams.uniform(streams.stream(0, "neighbours", torch.arange(n + 1)), 0)
    else:
        drawn = torch.stack([streams.uniform(streams.stream(seed, "neighbours"), 0) for seed in range(10_001)])
        n = 10_000
    correlation = float(torch.corrcoef(torch.stack([drawn[:-1], drawn[1:]]))[0, 1])
    assert abs(correlation) < 5 / math.sqrt(n)


@given(seed=seeds, below=st.integers(1, 2**40))
def test_integers_stay_in_range(seed: int, below: int) -> None:
    drawn = streams.integers(streams.stream(seed, "integers"), torch.arange(50), below)
    assert drawn.dtype == torch.int64
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < below


def test_normal_has_the_normal_distributions_moments_and_tails() -> None:
    n = 400_000
    drawn = streams.normal(streams.stream(2, "normal"), torch.arange(n))
    assert abs(float(drawn.mean())) < 5 / math.sqrt(n)
    assert float(drawn.var()) == pytest.approx(1.0, abs=5 * math.sqrt(2 / n))
    assert float((drawn**4).mean()) == pytest.approx(3.0, abs=5 * math.sqrt(96 / n))
    for bound, share in ((1.0, 0.317311), (2.0, 0.045500), (3.0, 0.002700)):
        assert float((drawn.abs() > bound).double().mean()) == pytest.approx(share, abs=5 * math.sqrt(share / n))
    pairs = drawn.view(-1, 2)
    assert abs(float(torch.corrcoef(pairs.T)[0, 1])) < 5 / math.sqrt(n / 2)


@given(seed=seeds, n=st.integers(0, 200))
def test_permutation_holds_each_number_once(seed: int, n: int) -> None:
    drawn = streams.permutation(streams.stream(seed, "permutation", torch.arange(3)), n)
    assert drawn.shape == (3, n)
    for row in drawn:
        assert sorted(row.tolist()) == list(range(n))


def test_all_permutations_are_equally_likely() -> None:
    drawn = streams.permutation(streams.stream(3, "permutation", torch.arange(48_000)), 4)
    codes = (drawn * torch.tensor([64, 16, 4, 1])).sum(1)
    _, counts = codes.unique(return_counts=True)
    assert len(counts) == 24
    assert (counts - 2000).abs().max() < 5 * math.sqrt(2000)


@given(seed=seeds, n=st.integers(1, 5000), data=st.data())
def test_choice_gives_k_different_numbers_in_order(seed: int, n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, min(n, 300)))
    drawn = streams.choice(streams.stream(seed, "choice"), n, k)
    assert drawn.dtype == torch.int64
    assert drawn.shape == (k,)
    assert sorted(set(drawn.tolist())) == drawn.tolist()
    assert all(0 <= number < n for number in drawn.tolist())


@pytest.mark.parametrize(("n", "k"), [(20, 3), (20, 10), (20, 19)])
def test_choice_favours_nobody(n: int, k: int) -> None:
    draws = 4000
    drawn = torch.cat([streams.choice(streams.stream(4, "choice", draw), n, k) for draw in range(draws)])
    share = k / n
    counts = drawn.bincount(minlength=n).double()
    assert (counts / draws - share).abs().max() < 5 * math.sqrt(share * (1 - share) / draws)


def test_choice_from_a_huge_number_is_cheap() -> None:
    assert len(streams.choice(streams.stream(5, "choice"), 10**15, 1000)) == 1000


@pytest.mark.parametrize("drop", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_keep_mask_drops_that_share(drop: float) -> None:
    n = 100_000
    kept = streams.keep_mask(streams.stream(6, "dropout"), n, drop)
    assert kept.dtype == torch.bool
    assert kept.shape == (n,)
    assert float(kept.double().mean()) == pytest.approx(1 - drop, abs=5 * math.sqrt(drop * (1 - drop) / n) + 1e-5)


def test_the_four_lanes_of_keep_mask_are_independent() -> None:
    kept = streams.keep_mask(streams.stream(7, "dropout"), 400_000, 0.5).view(-1, 4).double()
    correlation = torch.corrcoef(kept.T) - torch.eye(4)
    assert float(correlation.abs().max()) < 5 / math.sqrt(100_000)


@given(seed=seeds, n=st.integers(0, 40), more=st.integers(0, 40))
def test_a_longer_keep_mask_begins_with_the_shorter(seed: int, n: int, more: int) -> None:
    key = streams.stream(seed, "dropout")
    assert torch.equal(streams.keep_mask(key, n + more, 0.3)[:n], streams.keep_mask(key, n, 0.3))


def test_streams_work_inside_vmap() -> None:
    keys = streams.stream(8, "vmap", torch.arange(6))
    counter = torch.arange(10)
    inside = torch.func.vmap(lambda key: streams.uniform(key, counter))(keys)
    assert torch.equal(inside, streams.uniform(keys[:, None], counter))
