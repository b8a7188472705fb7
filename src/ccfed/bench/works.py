"""What is measured: the paper's models on made-up images of the shapes of Fashion-MNIST and CIFAR-10."""

from dataclasses import dataclass, replace
from functools import cache

import torch

from ccfed import data
from ccfed.algorithm import streams
from ccfed.data import Dataset, Federation, Inputs
from ccfed.models import MODELS, Maker

GREY = Inputs(scale=1 / 255, mean=(0.5,), std=(0.5,))
COLOUR = Inputs(1 / 255, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), crop=4, flip=True)
FEW = 8
"""So many trainings of a round tell the speed of those who make them one after another."""


@dataclass(frozen=True)
class Work:
    """A round's work: in each of `federations`, a share `participation` of `clients` makes `steps` steps of SGD on
    batches of `batch_size`; then the mean, and the test on 10 000 images."""

    name: str
    model: str
    federations: int
    clients: int
    participation: float
    steps: int
    batch_size: int
    lr: float = 0.01

    @property
    def selected(self) -> int:
        """The clients of one federation that train in a round."""
        return max(int(self.participation * self.clients + 1e-9), 1)

    @property
    def jobs(self) -> int:
        """The trainings of a round, of all federations."""
        return self.federations * self.selected

    @property
    def maker(self) -> Maker:
        """The function that makes the model."""
        return MODELS[self.model]

    def few(self) -> "Work":
        """The same trainings, but few of them, for those whose speed does not depend on how many there are."""
        if self.jobs <= 2 * FEW:
            return self
        share = min(1.0, FEW / self.clients)
        return replace(self, federations=1, participation=share, steps=min(self.steps, 100))

    def dataset(self) -> Dataset:
        """The images that the work trains and tests on."""
        return made_up((1, 28, 28), GREY, 60_000) if self.model == "mlp" else made_up((3, 32, 32), COLOUR, 50_000)

    def federation(self, seed: int) -> Federation:
        """The images, dealt out evenly."""
        return self.dataset().split(data.iid(), self.clients, seed)


WORKS = {
    work.name: work
    for work in (
        Work("mlp-20", "mlp", 1, 100, 0.2, 200, 32),
        Work("mlp-80", "mlp", 1, 100, 0.8, 200, 32),
        Work("mlp-2000", "mlp", 20, 100, 1.0, 200, 32),
        Work("cnn-8", "cnn", 1, 8, 1.0, 100, 64),
        Work("cnn-64", "cnn", 8, 8, 1.0, 300, 64),
        Work("resnet18-8", "resnet18", 1, 8, 1.0, 100, 64),
    )
}
"""The works by name: the model, and how many trainings a round has."""


def works_for(device: torch.device) -> tuple[str, ...]:
    """The works that are measured by default."""
    return ("mlp-20", "cnn-8") if device.type == "cpu" else ("mlp-80", "mlp-2000", "cnn-8", "cnn-64", "resnet18-8")


@cache
def made_up(shape: tuple[int, ...], inputs: Inputs, samples: int, tests: int = 10_000) -> Dataset:
    """Images of random bytes, uint8 [samples, *shape], with random labels of ten; always the same ones."""
    key, size = streams.stream(0, "benchmark"), samples + tests
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (size, *shape), generator=draw, dtype=torch.uint8)
    y = streams.integers(key, torch.arange(size), 10)
    return Dataset("made-up", x[:samples], y[:samples], x[samples:], y[samples:], tuple("0123456789"), inputs)
