"""Made-up data of any size, for trials of scale."""

import torch

from ccfed.algorithm import streams
from ccfed.data.dataset import Dataset
from ccfed.data.inputs import Inputs


def synthetic(
    samples: int, features: int = 16, classes: int = 10, seed: int = 0, *, test_samples: int = 1000, spread: float = 1.0
) -> Dataset:
    """Points around one centre a class: float32 [samples, features], labels int64, and as many test points as asked.

    Centres and points are normal, the points with `spread` times the deviation of the centres: with 1, a linear
    model separates ten classes in sixteen dimensions well, but not completely. Each sample is a function of
    (seed, its number), so a larger set begins with the samples of a smaller one.
    """
    for option, value in (("samples", samples), ("features", features), ("classes", classes)):
        if value < 1:
            raise ValueError(f"{option}={value} is not allowed: it is a whole number from 1 upwards")
    place = torch.arange(features)
    centres = streams.normal(streams.stream(seed, "synthetic: centres", torch.arange(classes))[:, None], place)

    def part(name: str, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        key = streams.stream(seed, name)
        y = streams.integers(streams.fold(key, 0), torch.arange(n), classes)
        x = torch.empty(n, features)
        for begin in range(0, n, 1 << 16):  # in pieces: the random bits take eight times the memory of the result
            rows = torch.arange(begin, min(begin + (1 << 16), n))
            noise = streams.normal(streams.fold(key, 1, rows)[:, None], place)
            x[rows[0] : rows[-1] + 1] = (centres[y[rows]] + spread * noise).to(torch.float32)
        return x, y

    names = tuple(str(number) for number in range(classes))
    train, test = part("synthetic: train", samples), part("synthetic: test", test_samples)
    return Dataset("synthetic", *train, *test, names, Inputs())
