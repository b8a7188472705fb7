"""S_t: which clients take part in round t."""

import torch
from torch import Tensor

from ccfed.algorithm import streams


def select(clients: int, participation: float, round: int, seed: int) -> Tensor:
    """max(int(participation * N), 1) different clients, uniformly, in ascending order: int64 [S]."""
    if not 0 < participation <= 1:
        raise ValueError(f"--participation is {participation}, but it must lie in (0, 1]")
    if participation == 1:
        return torch.arange(clients)
    # The small addend forgives 0.29 * 100 = 28.999999999999996.
    count = max(int(participation * clients + 1e-9), 1)
    return streams.choice(streams.stream(seed, "selection", round), clients, count)
