"""Who holds what: the ways of dealing a data set's training samples out to the clients.

A split is a function from (labels, number of clients, seed) to the clients' index lists. All of them are a handful
of whole-array operations, so that a million clients take seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ccfed.algorithm import streams
from ccfed.data.dataset import Parts

NAMES = ("mixed", "shards", "highly-skewed", "moderately-skewed", "dirichlet", "iid")
"""The splits that the command line knows by name; `explicit` is for Python only."""


@dataclass(frozen=True)
class Split:
    """A named way of dealing samples to clients; call it with (labels, clients, seed) to get the `Parts`.

    `deal` does the work and may trust its arguments: labels int64 [n] and 1 <= clients <= n are checked here.
    """

    name: str
    deal: Callable[[Tensor, int, int], Parts]

    def __call__(self, labels: Tensor, clients: int, seed: int = 0) -> Parts:
        """The index lists of `clients` clients over the samples with these `labels` (int64 [n])."""
        if labels.ndim != 1:
            raise ValueError(f"a split needs one label a sample, but the labels have shape {list(labels.shape)}")
        if clients < 1:
            raise ValueError(f"--clients {clients} is not allowed: at least 1 client is needed")
        if clients > len(labels):
            raise ValueError(
                f"--clients {clients} is more than the {len(labels)} training samples, and each client needs one"
            )
        return self.deal(labels.to("cpu", torch.int64), clients, seed)


def mixed(iid: float = 0.0) -> Split:
    """The paper's split: a share `iid` (its gamma) of each class dealt evenly, the rest in runs sorted by label.

    From each class, the first `iid` share of its samples goes to one common pool, which is shuffled and dealt
    equally; the rest, sorted by label, is dealt in equal consecutive runs. 0 is totally non-IID, 1 is IID.
    """
    if not 0.0 <= iid <= 1.0:
        raise ValueError(f"--iid {iid} is not allowed: it is a share between 0 and 1")

    def deal(labels: Tensor, clients: int, seed: int) -> Parts:
        order = torch.argsort(labels, stable=True)
        counts = torch.bincount(labels)
        starts = counts.cumsum(0) - counts
        rank = torch.arange(len(labels)) - starts[labels[order]]
        pooled = rank < torch.round(iid * counts.to(torch.float64))[labels[order]]
        pool, rest = order[pooled], order[~pooled]
        pool = pool[streams.permutation(streams.stream(seed, "split: mixed"), len(pool))]
        # What does not divide goes to the first clients from the pool and to the last from the runs: so the sizes
        # of any two clients differ by one at most.
        shares = _even(len(pool), clients), _even(len(rest), clients).flip(0)
        owners = torch.cat([torch.repeat_interleave(share) for share in shares])
        return _by_owner(torch.cat([pool, rest]), owners, clients)

    return Split("mixed", deal)


def iid() -> Split:
    """All samples shuffled and dealt equally, whatever their labels."""

    return Split("iid", _deal_evenly)


def shards(per_client: int = 2) -> Split:
    """The samples, sorted by label, are cut into `per_client` equal shards a client and handed out at random."""
    if per_client < 1:
        raise ValueError(f"--shards-per-client {per_client} is not allowed: it is a whole number from 1 upwards")

    def deal(labels: Tensor, clients: int, seed: int) -> Parts:
        drawn = streams.permutation(streams.stream(seed, "split: shards"), clients * per_client)
        return _by_shards(labels, drawn.view(clients, per_client))

    return Split("shards", deal)


def highly_skewed() -> Split:
    """Client i of N holds the i-th shard and the i-th from the end, of 2N shards sorted by label.

    Neighbouring clients hold the same few classes, so if budgets go by client index, a class is held by one budget
    level only.
    """

    def deal(labels: Tensor, clients: int, seed: int) -> Parts:
        return _by_shards(labels, _mirrored(clients))

    return Split("highly-skewed", deal)


def moderately_skewed() -> Split:
    """The first tenth of the clients hold shards as in `highly_skewed`, the others two of the rest at random."""

    def deal(labels: Tensor, clients: int, seed: int) -> Parts:
        fixed = (clients + 5) // 10
        held = _mirrored(clients)
        others = held[fixed:].flatten()
        drawn = streams.permutation(streams.stream(seed, "split: moderately-skewed"), len(others))
        return _by_shards(labels, torch.cat([held[:fixed], others[drawn].view(-1, 2)]))

    return Split("moderately-skewed", deal)


def dirichlet(alpha: float = 0.5, smallest: int = 10) -> Split:
    """Each class is dealt in proportions drawn from a Dirichlet distribution: the smaller `alpha`, the more uneven.

    Clients left with fewer than `smallest` samples are filled up to it with random samples of the others, each
    of which gives in proportion to what it has above `smallest`.
    """
    if not 0.0 < alpha < float("inf"):
        raise ValueError(f"--alpha {alpha} is not allowed: it is a number above 0")
    if smallest < 1:
        raise ValueError(f"--smallest {smallest} is not allowed: every client needs at least 1 sample")

    def deal(labels: Tensor, clients: int, seed: int) -> Parts:
        if clients * smallest > len(labels):
            raise ValueError(
                f"--clients {clients} with at least {smallest} samples each is more than the {len(labels)} training "
                "samples of the dirichlet split: lower --clients or --smallest"
            )
        root = streams.stream(seed, "split: dirichlet")
        shuffled = streams.permutation(streams.fold(root, 0), len(labels))
        order = shuffled[torch.argsort(labels[shuffled], stable=True)]
        owners = []
        for label, count in enumerate(torch.bincount(labels).tolist()):
            weights = _log_gamma_draws(streams.fold(root, 1, label), clients, alpha)
            ends = torch.softmax(weights, 0).cumsum(0)
            place = (torch.arange(count, dtype=torch.float64) + 0.5) / max(count, 1)
            owners.append(torch.searchsorted(ends, place, right=True).clamp_(max=clients - 1))
        owner = torch.cat(owners)
        return _by_owner(order, _with_floor(owner, clients, smallest, streams.fold(root, 2)), clients)

    return Split("dirichlet", deal)


def explicit(lists: Sequence[object]) -> Split:
    """Index lists made elsewhere, one array, tensor or list of sample numbers a client.

    Samples may be left out or held by several clients; an empty list or a number outside the data set is refused.
    """
    if len(lists) == 0:
        raise ValueError("the explicit split has no index lists: give one a client")
    parts = Parts.of([_sample_numbers(client, part) for client, part in enumerate(lists)])

    def deal(labels: Tensor, clients: int, seed: int) -> Parts:
        if clients != len(parts):
            raise ValueError(f"--clients {clients} does not fit the explicit split, which has {len(parts)} index lists")
        if int(parts.sizes.min()) == 0:
            empty = int(parts.sizes.argmin())
            raise ValueError(f"the explicit split gives client {empty} no sample, and each client needs one")
        if int(parts.members.min()) < 0 or int(parts.members.max()) >= len(labels):
            raise ValueError(
                f"the explicit split has sample numbers from {int(parts.members.min())} to {int(parts.members.max())}, "
                f"but the data set has samples 0 to {len(labels) - 1}"
            )
        return parts

    return Split("explicit", deal)


def _sample_numbers(client: int, part: object) -> Tensor:
    numbers = torch.as_tensor(part).flatten()
    # A mask would be taken for samples 0 and 1, and fractions would be cut off, and nobody would notice.
    if len(numbers) and (numbers.dtype == torch.bool or numbers.is_floating_point() or numbers.is_complex()):
        raise ValueError(
            f"the explicit split has {numbers.dtype} for client {client}: give the numbers of its samples (of a mask, "
            "those that np.flatnonzero finds)"
        )
    return numbers.to(torch.int64)


def by_name(
    name: str, *, iid: float = 0.0, shards_per_client: int = 2, alpha: float = 0.5, smallest: int = 10
) -> Split:
    """The split with this name of `NAMES`; each takes the settings that concern it and ignores the others."""
    match name:
        case "mixed":
            return mixed(iid)
        case "shards":
            return shards(shards_per_client)
        case "highly-skewed":
            return highly_skewed()
        case "moderately-skewed":
            return moderately_skewed()
        case "dirichlet":
            return dirichlet(alpha, smallest)
        case "iid":
            return Split("iid", _deal_evenly)
        case _:
            raise ValueError(f"--split {name!r} is unknown: choose {', '.join(NAMES)}")


def _deal_evenly(labels: Tensor, clients: int, seed: int) -> Parts:
    members = streams.permutation(streams.stream(seed, "split: iid"), len(labels))
    return _by_owner(members, torch.repeat_interleave(_even(len(labels), clients)), clients)


def _even(samples: int, clients: int) -> Tensor:
    """`samples` in `clients` sizes that differ by one at most, the larger ones first: int64 [clients]."""
    return samples // clients + (torch.arange(clients) < samples % clients).to(torch.int64)


def _by_owner(samples: Tensor, owner: Tensor, clients: int) -> Parts:
    """Gathers `samples` [n] by their `owner` [n]; each client's samples keep their order."""
    offsets = torch.zeros(clients + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(owner, minlength=clients), 0, out=offsets[1:])
    return Parts(samples[torch.argsort(owner, stable=True)], offsets)


def _by_shards(labels: Tensor, held: Tensor) -> Parts:
    """Deals equal shards of the label-sorted samples: client i gets those at the places `held[i]` [clients, shards].

    The places are a permutation of 0..clients*shards-1. Clients' sizes differ by one at most, and so do shards'.
    """
    clients, per_client = held.shape
    if held.numel() > len(labels):
        raise ValueError(
            f"--clients {clients} with {per_client} shards each needs {held.numel()} shards of at least one sample, "
            f"but there are {len(labels)} training samples: lower --clients or --shards-per-client"
        )
    mine = _even(len(labels), clients)[:, None]
    sizes = mine // per_client + (torch.arange(per_client) < mine % per_client).to(torch.int64)
    places = held.flatten()
    size_at, owner_at = torch.empty_like(places), torch.empty_like(places)
    size_at[places] = sizes.flatten()
    owner_at[places] = torch.arange(clients).repeat_interleave(per_client)
    return _by_owner(torch.argsort(labels, stable=True), owner_at.repeat_interleave(size_at), clients)


def _mirrored(clients: int) -> Tensor:
    """The places of the highly skewed split: (i, 2N - 1 - i) for client i, int64 [clients, 2]."""
    first = torch.arange(clients)
    return torch.stack([first, 2 * clients - 1 - first], 1)


def _log_gamma_draws(key: Tensor, n: int, alpha: float) -> Tensor:
    """Logarithms of `n` draws of the Gamma(alpha, 1) distribution (Marsaglia and Tsang, 2000): float64 [n].

    Draws for alpha + 1, then the boost u^(1/alpha); the logarithm keeps a small alpha from underflowing to zero.
    """
    d = alpha + 1.0 - 1.0 / 3.0
    c = 1.0 / (9.0 * d) ** 0.5
    result = torch.empty(n, dtype=torch.float64)
    open_places = torch.arange(n)
    attempt = 0
    while len(open_places):
        x = streams.normal(streams.fold(key, 2 * attempt), open_places)
        u = streams.uniform(streams.fold(key, 2 * attempt + 1), open_places)
        v = (1.0 + c * x).clamp(min=1e-300) ** 3
        accepted = torch.log1p(-u) < 0.5 * x * x + d - d * v + d * torch.log(v)
        result[open_places[accepted]] = torch.log(d * v[accepted])
        open_places = open_places[~accepted]
        attempt += 1
    boost = streams.uniform(streams.fold(key, -1), torch.arange(n))
    return result + torch.log1p(-boost) / alpha


def _with_floor(owner: Tensor, clients: int, smallest: int, key: Tensor) -> Tensor:
    """`owner` [n] changed where needed so that every client owns at least `smallest` samples."""
    sizes = torch.bincount(owner, minlength=clients)
    missing = (smallest - sizes).clamp(min=0)
    total = int(missing.sum())
    if total == 0:
        return owner
    surplus = (sizes - smallest).clamp(min=0)
    # Proportional, rounded so that the sum is exact: the difference of rounded running totals.
    running = torch.div(surplus.cumsum(0) * total, int(surplus.sum()), rounding_mode="floor")
    gives = running.diff(prepend=torch.zeros(1, dtype=torch.int64))
    mixed_up = streams.permutation(key, len(owner))
    by_owner = mixed_up[torch.argsort(owner[mixed_up], stable=True)]
    rank = torch.arange(len(owner)) - (sizes.cumsum(0) - sizes)[owner[by_owner]]
    given = by_owner[rank < gives[owner[by_owner]]]
    given = given[streams.permutation(streams.fold(key, 0), len(given))]
    changed = owner.clone()
    changed[given] = torch.repeat_interleave(missing)
    return changed
