"""Own data through whole simulations: text and tables, unequal clients, and augmentation that depends on nobody."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ccfed
from ccfed import budgets, data, methods
from ccfed.simulation.results import Run

ENGINES = ("one-by-one", "together")


class MeanOfWords(nn.Module):
    """The mean of the word vectors of a text, then a linear layer."""

    def __init__(self, words: int, classes: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(words, 8)
        self.scores = nn.Linear(8, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.scores(self.vectors(tokens).mean(1))


def texts(n: int, seed: int) -> tuple[np.ndarray, list[str]]:
    """Texts of nine words of a hundred, of which three are typical of the topic."""
    random = np.random.default_rng(seed)
    topic = random.integers(0, 4, n)
    words = random.integers(20, 100, (n, 9))
    words[:, :3] = topic[:, None] * 5 + random.integers(0, 5, (n, 3))
    return random.permuted(words, axis=1), [("art", "law", "math", "sport")[t] for t in topic]


@pytest.mark.parametrize("engine", ENGINES)
def test_text_is_learned_with_an_embedding(engine: str) -> None:
    made = data.from_arrays(*texts(600, 0), *texts(200, 1), name="texts")
    assert made.classes == ("art", "law", "math", "sport")
    federation = made.split(data.mixed(0.3), clients=6)
    runs = ccfed.simulate(
        federation, [methods.fedavg(), methods.cc_fedavg(budgets.levels(6, 2))],
        model=lambda shape, classes: MeanOfWords(100, classes), rounds=15, steps=10, lr=1.0,
        engine=engine, device="cpu",
    )  # fmt: skip
    for run in runs:
        assert run.accuracy[0, 0] < 70
        assert run.accuracy[0, -1] > 90


def test_token_ids_beyond_the_embedding_are_refused_before_training() -> None:
    tokens, topics = texts(60, 0)
    tokens[17, 4] = 100
    made = data.from_arrays(tokens, topics, tokens[:9], topics[:9])
    with pytest.raises(ValueError, match=r"--model .* does not take samples of shape .*: index out of range"):
        ccfed.simulate(made.split(data.iid(), 3), methods.fedavg(), model=lambda shape, n: MeanOfWords(100, n))


def test_a_table_with_words_as_labels_is_learned() -> None:
    random = np.random.default_rng(0)
    rows = random.normal(size=(500, 4)) * [1, 10, 100, 1000] + [0, 5, 50, 500]
    labels = np.where((rows[:, 1] > 5) ^ (rows[:, 3] > 500), "yes", "no")
    mean, deviation = rows.mean(0), rows.std(0)
    rows = (rows - mean) / deviation
    made = data.from_arrays(rows[:400], labels[:400], rows[400:], labels[400:])
    network = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    runs = ccfed.simulate(
        made.split(data.iid(), clients=4), methods.fedavg(), model=network, rounds=20, steps=20, lr=0.5, device="cpu"
    )
    assert runs["fedavg"].accuracy[0, -1] > 85


def marked(sizes: list[int]) -> data.Federation:
    """Each training sample has a feature of its own, so that a model without bias tells which samples it saw."""
    n = sum(sizes)
    numbers = torch.arange(n)
    made = data.from_arrays(torch.eye(n), numbers % 2, torch.eye(n), numbers % 2)
    return made.split(data.explicit(list(numbers.split(sizes))), clients=len(sizes))


def zeros(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A linear model of zeros in double precision: with a tiny rate, each sample's every visit moves it by as much."""
    layer = nn.Linear(shape[0], classes, bias=False, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    return layer


def visits(federation: data.Federation, **settings: object) -> list[list[float]]:
    """For each client and sample the sum of 1/(samples in the batch) over the batches that it was in, times the
    client's weight in the server's mean."""
    lr = 1e-9
    runs = ccfed.simulate(federation, methods.fedavg(), model=zeros, lr=lr, device="cpu", **settings)  # type: ignore[arg-type]
    (run,) = runs["fedavg"].runs
    moved = torch.from_numpy(run.model).view(2, -1).abs()[0] / (0.5 * lr)
    return [sorted(round(float(share), 6) for share in moved[part]) for part in federation.parts]


@pytest.mark.parametrize("engine", ENGINES)
def test_small_and_large_clients_go_through_their_own_epochs(engine: str) -> None:
    """Two steps of 4: of 7 samples, four and then three; of 3, all three, twice; of 1, that one, twice."""
    seen = visits(marked([7, 3, 1]), rounds=1, steps=2, batch_size=4, engine=engine)
    each = 1 / 3  # three clients, equal weights
    assert seen[0] == pytest.approx([each / 4] * 4 + [each / 3] * 3, abs=1e-5)
    assert seen[1] == pytest.approx([each * 2 / 3] * 3, abs=1e-5)
    assert seen[2] == pytest.approx([each * 2], abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_epoch_goes_on_in_the_next_round(engine: str) -> None:
    """Three rounds of one step: 7 samples in batches of 4, 3 and 4 again; 12 samples in three batches of 4."""
    seen = visits(marked([7, 12]), rounds=3, steps=1, batch_size=4, engine=engine)
    once, both = [1 / 4 / 2, 1 / 3 / 2], [(1 / 4 + 1 / 4) / 2, (1 / 3 + 1 / 4) / 2]
    assert sum(seen[0]) == pytest.approx(3 / 2, abs=1e-5)
    assert all(any(abs(share - each) < 1e-5 for each in once + both) for share in seen[0])
    assert seen[1] == pytest.approx([1 / 4 / 2] * 12, abs=1e-5)


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_by_samples_weigh_every_sample_alike(engine: str) -> None:
    """With one full batch a client and weights by size, each sample counts as much as any other."""
    federation = marked([7, 3, 1, 9])
    settings = {"rounds": 1, "steps": 1, "batch_size": 10, "engine": engine}
    alike = visits(federation, weights="samples", **settings)
    assert [share for client in alike for share in client] == pytest.approx([1 / 20] * 20, abs=1e-5)
    equal = visits(federation, weights="equal", **settings)
    assert [sum(client) for client in equal] == pytest.approx([1 / 4] * 4, abs=1e-5)
    assert equal[2] == pytest.approx([1 / 4], abs=1e-5)


def test_weights_count_among_the_selected_only() -> None:
    federation = marked([7, 3, 1, 9])
    settings = {"rounds": 1, "steps": 1, "batch_size": 10, "participation": 0.5, "seeds": (5,)}
    seen = visits(federation, weights="samples", **settings)
    selected = [client for client in range(4) if sum(seen[client]) > 0]
    assert len(selected) == 2
    samples = sum(len(federation.parts[client]) for client in selected)
    assert [share for client in selected for share in seen[client]] == pytest.approx([1 / samples] * samples, abs=1e-5)


def test_costs_count_steps_whatever_the_client_holds() -> None:
    lists = torch.arange(1361).split([1000, 200, 100, 50, 10, 1])
    federation = data.load("digits").split(data.explicit(lists), clients=6)
    p = budgets.explicit([1, 1, 1, 0.5, 0.5, 0.5], 6)
    runs = ccfed.simulate(
        federation, methods.cc_fedavg(p, schedule=ccfed.schedules.round_robin()),
        rounds=4, steps=3, weights="samples", device="cpu",
    )  # fmt: skip
    (run,) = runs["cc-fedavg"].runs
    assert run.column("client_steps").tolist() == [18, 9, 18, 9]
    assert run.column("trained").tolist() == [6, 3, 6, 3]
    assert run.column("estimated").tolist() == [0, 3, 0, 3]
    assert run.compute_saved == pytest.approx(0.25)


def small_cnn(shape: tuple[int, ...], classes: int) -> nn.Module:
    """In double precision, so that engines may differ by nothing but the order of sums."""
    layers = nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(100, classes))
    return layers.double()


def pictures() -> data.Dataset:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (90, 12, 12, 3), dtype=np.uint8)
    inputs = data.Inputs(scale=1 / 255, mean=(0.5, 0.4, 0.6), std=(0.2, 0.3, 0.25), crop=3, flip=True)
    return data.from_arrays(images, random.integers(0, 3, 90), images[:9], random.integers(0, 3, 9), inputs=inputs)


def test_augmentation_does_not_depend_on_engine_or_company() -> None:
    federation = pictures().split(data.dirichlet(0.5, smallest=2), clients=5)
    assert len(set(federation.sizes.tolist())) > 1
    p = budgets.levels(5, 2)
    wanted = methods.cc_fedavg(p)
    others = [methods.fedavg(), methods.strategy_1(p)]

    def final(chosen: list[methods.Method], engine: str, seeds: tuple[int, ...] = (1,)) -> np.ndarray:
        runs = ccfed.simulate(
            federation, chosen, model=small_cnn, rounds=3, steps=4, batch_size=7, seeds=seeds, engine=engine,
            device="cpu",
        )  # fmt: skip
        return next(run.model for run in runs["cc-fedavg"].runs if run.seed == 1)

    alone = final([wanted], "one-by-one")
    for engine in ENGINES:
        for company, seeds in (([], (1,)), (others, (1,)), (others, (0, 1, 2))):
            np.testing.assert_allclose(final([*company, wanted], engine, seeds), alone, rtol=0, atol=1e-9)


def test_augmentation_changes_what_training_sees_and_nothing_else() -> None:
    augmented = pictures()
    plain = replace(augmented, inputs=replace(augmented.inputs, crop=0, flip=False))

    def run(made: data.Dataset, lr: float) -> Run:
        federation = made.split(data.iid(), clients=3)
        runs = ccfed.simulate(federation, methods.fedavg(), model=small_cnn, rounds=1, steps=4, lr=lr, device="cpu")
        return runs["fedavg"].runs[0]

    assert np.abs(run(augmented, 0.05).model - run(plain, 0.05).model).max() > 1e-4
    # A model that hardly moves is tested on the same samples.
    assert run(augmented, 1e-12).records[0].loss == pytest.approx(run(plain, 1e-12).records[0].loss, abs=1e-9)
