"""One federation that is to be simulated: everything decided, nothing begun."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ccfed import data
from ccfed.algorithm.methods import Method
from ccfed.data import Federation
from ccfed.data.splits import NAMES
from ccfed.models.network import Maker, Network, build, check_fit, find_model, reason
from ccfed.simulation.settings import Settings, known
from ccfed.training.dropout import StreamedDropout


@dataclass(frozen=True, eq=False)
class Experiment:
    """A method on a federation: `name` (of the method in results) and `seed` tell experiments apart."""

    method: Method
    federation: Federation
    model: Maker | nn.Module
    seed: int = 0
    rounds: int = 100
    steps: int = 20
    batch_size: int = 32
    lr: float = 0.05
    participation: float = 1.0
    weights: Literal["equal", "samples"] = "equal"
    name: str = ""
    settings: Settings | None = None

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.method.name)
        if self.method.p is not None and len(self.method.p) != self.federation.clients:
            raise ValueError(
                f"method {self.method.name!r} has {len(self.method.p)} budgets p, "
                f"but the federation has {self.federation.clients} clients"
            )
        known("--weights", self.weights, ("equal", "samples"))
        empty = (self.federation.sizes == 0).nonzero().flatten()
        if len(empty):
            raise ValueError(f"client {int(empty[0])} holds no samples, but every client needs at least one")

    @property
    def label(self) -> str:
        """Such as 'cc-fedavg, seed 0'."""
        return f"{self.name}, seed {self.seed}"

    @property
    def client_steps_full(self) -> int:
        """The client-steps that full training of every selected client would take."""
        return self.rounds * self.steps * self.selected

    @property
    def selected(self) -> int:
        """The clients that are selected in each round."""
        return max(int(self.participation * self.federation.clients + 1e-9), 1)

    def make_network(self) -> Network:
        """The network with this experiment's initial parameters, checked against the data."""
        dataset = self.federation.data
        classes = len(dataset.classes)
        network = build(self.model, dataset.sample_shape, classes, self.seed)
        dtype = next(iter(network.views(network.flat()).values())).dtype
        examples = dataset.inputs.prepare(dataset.examples().cpu(), dtype)
        check_fit(network, examples, classes)
        _check_training(network.module, examples)
        return network

    def weight_of_each(self) -> Tensor | None:
        """One weight a client (float64 [clients]) for the server's mean, or None for equal ones."""
        return self.federation.sizes.to(torch.float64) if self.weights == "samples" else None


def _check_training(module: nn.Module, examples: Tensor) -> None:
    """Raises unless `module` also runs as it does in training, draws no random numbers but those of dropout, which come
    from the streams (others would differ from run to run), and keeps its buffers (one client's would reach others)."""
    name = type(module).__name__
    was_training, before = module.training, torch.random.get_rng_state()
    try:
        with torch.no_grad(), StreamedDropout(torch.zeros((), dtype=torch.int64)):
            module.train()(examples)
            buffers = {place: buffer.clone() for place, buffer in module.named_buffers()}
            if buffers:
                module(examples)  # once more, for a buffer that is filled once and for all does not matter
    except Exception as error:  # whatever a model may raise
        if str(error).startswith("--model"):
            raise  # one of ours, which says all
        raise ValueError(f"--model ({name}) cannot be trained: {reason(error)}") from error
    finally:
        module.train(was_training)
    if not torch.equal(torch.random.get_rng_state(), before):
        torch.random.set_rng_state(before)
        raise ValueError(
            f"--model ({name}) draws random numbers that no seed repeats, as the dropout inside of nn.LSTM or of "
            "attention does: set that to 0, and use nn.Dropout"
        )
    for place, buffer in module.named_buffers():
        if place not in buffers or not torch.equal(buffer, buffers[place]):
            raise ValueError(
                f"--model ({name}) changes its buffer {place!r} whenever it is trained, which is no parameter and "
                "would go from one client to the next: leave that out"
            )


def split_of(settings: Settings) -> data.Split:
    """The split that `settings` name, with its parameters."""
    known("--split", settings.split, NAMES)
    return data.by_name(
        settings.split,
        iid=settings.iid,
        shards_per_client=settings.shards_per_client,
        alpha=settings.alpha,
        smallest=settings.smallest,
    )


def federation_of(settings: Settings) -> Federation:
    """Loads the data set of `settings` and deals it out."""
    split = split_of(settings)
    dataset = data.load(settings.data, settings.data_dir, samples=settings.samples_to_make())
    return dataset.split(split, settings.clients, settings.seed)


def experiments_of(settings: Settings, methods: tuple[str, ...], seeds: tuple[int, ...]) -> list[Experiment]:
    """One experiment for each method and seed, on the same federation for each seed."""
    made = []
    dataset = None
    for seed in seeds:
        seeded = replace(settings, seed=seed).check()
        candidates = [replace(seeded, method=name).check() for name in methods]
        chosen = [each.make_method() for each in candidates]  # before any data are read: bad input is told at once
        maker = find_model(settings.model)
        split = split_of(seeded)
        # One data set for all seeds, so that their federations can share a batch.
        dataset = dataset or data.load(settings.data, settings.data_dir, samples=settings.samples_to_make())
        federation = dataset.split(split, seeded.clients, seed)
        for each, method in zip(candidates, chosen, strict=True):
            made.append(
                Experiment(
                    method=method,
                    federation=federation,
                    model=maker,
                    seed=seed,
                    rounds=each.rounds,
                    steps=each.steps,
                    batch_size=each.batch_size,
                    lr=each.lr,
                    participation=each.participation,
                    weights=each.weights,
                    settings=each,
                )
            )
    return made
