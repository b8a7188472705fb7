"""Who gets what: every split deals each sample once, evenly where it says so, and as the paper describes it."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from ccfed import data
from ccfed.data import splits

EQUAL = {
    "mixed 0": data.mixed(0.0),
    "mixed 0.37": data.mixed(0.37),
    "mixed 1": data.mixed(1.0),
    "shards 1": data.shards(1),
    "shards 2": data.shards(2),
    "shards 3": data.shards(3),
    "highly skewed": data.highly_skewed(),
    "moderately skewed": data.moderately_skewed(),
    "iid": data.iid(),
}
ALL = EQUAL | {"dirichlet 0.05": data.dirichlet(0.05, smallest=1), "dirichlet 5": data.dirichlet(5.0, smallest=2)}

labels_lists = st.lists(st.integers(0, 6), min_size=60, max_size=300)


@given(labels=labels_lists, clients=st.integers(1, 20), seed=st.integers(0, 2**40), name=st.sampled_from(sorted(ALL)))
def test_every_sample_has_exactly_one_holder(labels: list[int], clients: int, seed: int, name: str) -> None:
    parts = ALL[name](torch.tensor(labels), clients, seed)
    assert len(parts) == clients
    assert sorted(parts.members.tolist()) == list(range(len(labels)))
    assert int(parts.offsets[0]) == 0
    assert int(parts.offsets[-1]) == len(labels)
    assert int(parts.sizes.min()) >= 1


@given(labels=labels_lists, clients=st.integers(1, 20), seed=st.integers(0, 99), name=st.sampled_from(sorted(EQUAL)))
def test_equal_means_that_sizes_differ_by_one_at_most(labels: list[int], clients: int, seed: int, name: str) -> None:
    sizes = EQUAL[name](torch.tensor(labels), clients, seed).sizes
    assert int(sizes.max()) - int(sizes.min()) <= 1


@given(labels=labels_lists, seed=st.integers(0, 99), name=st.sampled_from(sorted(ALL)))
def test_the_same_seed_gives_the_same_split(labels: list[int], seed: int, name: str) -> None:
    first, second = (ALL[name](torch.tensor(labels), 7, seed) for _ in range(2))
    assert torch.equal(first.members, second.members)
    assert torch.equal(first.offsets, second.offsets)


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("mixed 0", "highly skewed")])
def test_another_seed_gives_another_split(name: str) -> None:
    labels = torch.arange(1000) % 10
    assert not torch.equal(ALL[name](labels, 20, 0).members, ALL[name](labels, 20, 1).members)


def by_hand(labels: Tensor, clients: int, gamma: float) -> tuple[list[int], list[list[int]]]:
    """The paper's rule in plain Python: the common pool, and each client's run of the rest."""
    pool, rest = [], []
    for label in sorted(set(labels.tolist())):
        of_class = [i for i, y in enumerate(labels.tolist()) if y == label]
        share = round(gamma * len(of_class))
        pool += of_class[:share]
        rest += of_class[share:]
    run = len(rest) // clients
    return pool, [rest[i * run : (i + 1) * run] for i in range(clients)]


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.5, 1.0])
def test_mixed_follows_the_papers_rule(gamma: float) -> None:
    labels = torch.tensor(np.random.default_rng(3).permutation(np.repeat(np.arange(10), 80)))
    parts = data.mixed(gamma)(labels, 8, seed=5)
    pool, runs = by_hand(labels, 8, gamma)
    for client, run in enumerate(runs):
        held = parts[client].tolist()
        assert len(held) == 100
        assert set(run) <= set(held)
        assert len(set(held) & set(pool)) == len(pool) // 8


def test_the_pool_of_mixed_is_shuffled() -> None:
    labels = torch.arange(8000) // 800
    held = [labels[data.mixed(1.0)(labels, 8, seed=0)[client]].bincount(minlength=10) for client in range(8)]
    # 1000 of 8000 drawn without replacement: 100 a class on average, with a standard deviation of 8.9.
    assert all(55 < int(count) < 145 for counts in held for count in counts)


def test_shards_are_runs_of_the_sorted_labels() -> None:
    labels = torch.tensor(np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600)))
    parts = data.shards(2)(labels, 100, seed=1)  # 200 shards of 30, twenty a class: each shard is of one class
    counts = torch.stack([labels[parts[i]].bincount(minlength=10) for i in range(100)])
    assert set(counts.flatten().tolist()) == {0, 30, 60}
    rank = torch.empty_like(labels)
    rank[torch.argsort(labels, stable=True)] = torch.arange(6000)
    shards_held = [sorted(set((rank[parts[i]] // 30).tolist())) for i in range(100)]
    assert sorted(shard for held in shards_held for shard in held) == list(range(200))
    assert {len(held) for held in shards_held} == {2}


def positions(labels: Tensor, split: splits.Split, clients: int, seed: int = 0) -> list[list[int]]:
    """Which of the 2N label-sorted shards each client holds."""
    parts, size = split(labels, clients, seed), len(labels) // (2 * clients)
    return [sorted(set((parts[i] // size).tolist())) for i in range(clients)]


def test_highly_skewed_pairs_the_ends() -> None:
    labels = torch.arange(60000) // 6000
    assert positions(labels, data.highly_skewed(), 100) == [[i, 199 - i] for i in range(100)]


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_moderately_skewed_fixes_the_first_tenth_only(seed: int) -> None:
    held = positions(torch.arange(6000) // 600, data.moderately_skewed(), 100, seed)
    assert held[:10] == [[i, 199 - i] for i in range(10)]
    assert sorted(place for each in held[10:] for place in each) == list(range(10, 190))
    assert held[10:] != [[i, 199 - i] for i in range(10, 100)]


@given(
    alpha=st.floats(0.001, 100.0),
    clients=st.integers(1, 15),
    smallest=st.integers(1, 12),
    labels=labels_lists,
    seed=st.integers(0, 99),
)
def test_dirichlet_keeps_its_floor(alpha: float, clients: int, smallest: int, labels: list[int], seed: int) -> None:
    assume(clients * smallest <= len(labels))
    parts = data.dirichlet(alpha, smallest)(torch.tensor(labels), clients, seed)
    assert int(parts.sizes.min()) >= smallest
    assert sorted(parts.members.tolist()) == list(range(len(labels)))


@pytest.mark.parametrize("alpha", [0.1, 0.5, 2.0, 50.0])
def test_dirichlet_shares_have_the_distributions_moments(alpha: float) -> None:
    clients, classes, a_class = 10, 400, 1000
    labels = torch.arange(classes * a_class) // a_class
    parts = data.dirichlet(alpha, smallest=1)(labels, clients, seed=2)
    owner = torch.empty_like(labels)
    owner[parts.members] = torch.repeat_interleave(parts.sizes)
    shares = (
        torch.bincount(labels * clients + owner, minlength=classes * clients).view(classes, clients).double() / a_class
    )
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    # 400 classes are 400 independent draws: the mean of a client's share is normal around 1/N.
    assert (shares.mean(0) - 1 / clients).abs().max() < 4.5 * (variance / classes) ** 0.5
    assert shares.var(0).mean() == pytest.approx(variance, rel=0.15)


def test_explicit_takes_the_lists_as_they_are() -> None:
    lists = [[0, 5], np.array([1]), torch.tensor([2, 3, 0])]
    parts = data.explicit(lists)(torch.zeros(6, dtype=torch.int64), 3, 0)
    assert [parts[i].tolist() for i in range(3)] == [[0, 5], [1], [2, 3, 0]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda y: data.iid()(y, 21, 0), ["--clients 21", "20"]),
        (lambda y: data.mixed()(y, 0, 0), ["--clients 0"]),
        (lambda y: data.shards(3)(y, 7, 0), ["--clients 7", "--shards-per-client"]),
        (lambda y: data.dirichlet(0.5, 10)(y, 3, 0), ["--clients 3", "10"]),
        (lambda y: data.mixed(1.5), ["--iid 1.5"]),
        (lambda y: data.mixed(float("nan")), ["--iid nan"]),
        (lambda y: data.shards(0), ["--shards-per-client 0"]),
        (lambda y: data.dirichlet(0.0), ["--alpha 0.0"]),
        (lambda y: data.dirichlet(float("nan")), ["--alpha nan"]),
        (lambda y: data.explicit([[0], [1]])(y, 3, 0), ["--clients 3", "2"]),
        (lambda y: data.explicit([[0], []])(y, 2, 0), ["client 1"]),
        (lambda y: data.explicit([[0], [20]])(y, 2, 0), ["20", "19"]),
        (lambda y: data.explicit([[0], [-1]])(y, 2, 0), ["-1"]),
        (lambda y: data.by_name("shard"), ["--split 'shard'", "shards"]),
        (lambda y: data.iid()(y.view(10, 2), 2, 0), ["[10, 2]"]),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, words: list[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call(torch.arange(20) % 4)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_lead_to_their_splits() -> None:
    labels = torch.arange(400) % 10
    made = {
        "mixed": data.mixed(0.3),
        "shards": data.shards(3),
        "highly-skewed": data.highly_skewed(),
        "moderately-skewed": data.moderately_skewed(),
        "dirichlet": data.dirichlet(0.2, 4),
        "iid": data.iid(),
    }
    assert tuple(made) == splits.NAMES
    for name, split in made.items():
        named = data.by_name(name, iid=0.3, shards_per_client=3, alpha=0.2, smallest=4)
        assert named.name == split.name == name
        assert torch.equal(named(labels, 10, 1).members, split(labels, 10, 1).members)


@pytest.mark.slow
@pytest.mark.parametrize("name", splits.NAMES)
def test_a_million_clients(name: str) -> None:
    labels = torch.arange(3_000_000) % 10
    parts = data.by_name(name, iid=0.5, smallest=1)(labels, 1_000_000, 0)
    assert len(parts) == 1_000_000
    assert int(parts.sizes.min()) >= 1
    assert int(parts.members.bincount(minlength=3_000_000).max()) == 1


@pytest.mark.parametrize(
    ("lists", "words"),
    [
        ([], "no index lists"),
        ([[0, 1], np.array([True, False, True])], "torch.bool for client 1"),
        ([[0.0, 1.5]], "torch.float32 for client 0"),
    ],
)
def test_what_is_no_list_of_sample_numbers_is_refused(lists, words) -> None:
    with pytest.raises(ValueError, match=words):
        data.explicit(lists)
