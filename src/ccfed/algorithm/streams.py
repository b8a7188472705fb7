"""Random numbers without state: every draw is a pure function of what it is for.

A stream is named by a 64-bit key; its n-th number is SplitMix64 (Steele, Lea and Flood, 2014) of the key and n. A key
is derived from (seed, purpose, client, round ...) by drawing from the parent key at each position. Nothing is
consumed, so the order in which clients are visited never matters, any number can be drawn again after a restart, and
all of it is integer arithmetic on tensors: the same on every device, inside `torch.func.vmap` and in a kernel.
"""

import hashlib
import operator
from functools import cache

import torch
from torch import Tensor

# SplitMix64's constants, as the signed 64-bit integers that torch knows. Multiplication wraps around.
GAMMA = 0x9E3779B97F4A7C15 - 2**64
MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
MIX_2 = 0x94D049BB133111EB - 2**64

_MASK = {30: (1 << 34) - 1, 27: (1 << 37) - 1, 31: (1 << 33) - 1, 11: (1 << 53) - 1}


def _shift(z: Tensor, by: int) -> Tensor:
    """Logical right shift (torch's own carries the sign)."""
    return (z >> by) & _MASK[by]


def _signed(number: int) -> int:
    """The int64 with the low 64 bits of `number`: Python's integers do not wrap around by themselves."""
    return (number + 2**63) % 2**64 - 2**63


def bits(key: Tensor, counter: Tensor | int) -> Tensor:
    """64 random bits (int64) for each pair of `key` and `counter`, broadcast against each other."""
    step = (counter + 1) * GAMMA
    z = key + (_signed(step) if isinstance(step, int) else step)
    z = (z ^ _shift(z, 30)) * MIX_1
    z = (z ^ _shift(z, 27)) * MIX_2
    return z ^ _shift(z, 31)


def fold(key: Tensor, *path: Tensor | int) -> Tensor:
    """The key of the sub-stream that `path` leads to: `fold(key, client, round)`."""
    for place in path:
        key = bits(key, place)
    return key


@cache
def purpose(name: str) -> int:
    """A fixed number for a word, so that streams for different purposes never meet."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little", signed=True)


def stream(seed: int, name: str, *path: Tensor | int) -> Tensor:
    """The key of the stream for (`seed`, purpose `name`, `path`...): a scalar int64 tensor, or one per path entry."""
    number = operator.index(seed)  # Python's own integer, as NumPy's would overflow
    return fold(torch.tensor(_signed(number), dtype=torch.int64), purpose(name), *path)


def uniform(key: Tensor, counter: Tensor | int) -> Tensor:
    """Uniform float64 numbers in [0, 1), of the broadcast shape of `key` and `counter`."""
    return _shift(bits(key, counter), 11).to(torch.float64) * 2.0**-53


def integers(key: Tensor, counter: Tensor | int, below: Tensor | int) -> Tensor:
    """Uniform int64 numbers in [0, below)."""
    return (uniform(key, counter) * below).to(torch.int64)


def normal(key: Tensor, counter: Tensor | int) -> Tensor:
    """Standard normal float64 numbers (Box and Muller), of the broadcast shape of `key` and `counter`."""
    radius = torch.sqrt(-2.0 * torch.log1p(-uniform(key, counter * 2)))
    return radius * torch.cos(2.0 * torch.pi * uniform(key, counter * 2 + 1))


def permutation(key: Tensor, n: int) -> Tensor:
    """A uniform permutation of 0..n-1 for each key: int64, shape [*key.shape, n]."""
    return torch.argsort(bits(key[..., None], torch.arange(n, device=key.device)), dim=-1, stable=True)


def choice(key: Tensor, n: int, k: int) -> Tensor:
    """`k` different numbers of 0..n-1, uniformly, in ascending order: int64, shape [k]. Its cost follows k, not n."""
    if 4 * k >= n:
        return permutation(key, n)[:k].sort().values
    drawn: dict[int, None] = {}
    start = 0
    while len(drawn) < k:
        more = 2 * (k - len(drawn))
        for number in integers(key, torch.arange(start, start + more), n).tolist():
            if len(drawn) < k:
                drawn.setdefault(number)
        start += more
    return torch.tensor(sorted(drawn), dtype=torch.int64)


def keep_mask(key: Tensor, n: int, drop: float) -> Tensor:
    """Dropout's choice for `n` units: bool, shape [*key.shape, n], True with probability 1 - drop (in steps of
    1/65536).

    One draw of 64 bits serves four units, lowest bits first, so that dropout costs little beside the layer it follows.
    """
    draws = bits(key[..., None], torch.arange((n + 3) // 4, device=key.device))
    # torch has no unsigned 16-bit comparison: with the top bit flipped, signed order is unsigned order.
    lanes = draws.view(torch.int16) ^ -32768
    threshold = round(drop * 65536) - 32768
    if threshold == 32768:
        return torch.zeros_like(lanes[..., :n], dtype=torch.bool)
    return lanes[..., :n] >= threshold
