"""Promise 3: every engine gives the moves of the reference, whatever else shares the batch. On a GPU too, if there is
one."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from ccfed.data import Inputs
from ccfed.models import cnn, mlp
from ccfed.models.network import Maker, build
from ccfed.models.resnet import Block
from ccfed.training import Engine, Jobs, OneByOne, Task, Together, batches, choose
from ccfed.training.anymodule import AnyModule
from ccfed.training.captured import CapturedModule, rounded
from ccfed.training.choose import make
from ccfed.training.lanes import Lanes
from ccfed.training.stepping import Stepper

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
GREY = Inputs(scale=1 / 255, mean=(0.5,), std=(0.5,))
COLOUR = Inputs(1 / 255, (0.5, 0.4, 0.3), (0.2, 0.25, 0.3), crop=2, flip=True)


def tiny_resnet(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """The parts of ResNet-18: a stem, a plain block, one with a stride and a shortcut, and the head."""
    return nn.Sequential(
        nn.Conv2d(sample_shape[0], 16, 3, 1, 1, bias=False),
        nn.GroupNorm(16, 16),
        Block(16, 16, 1),
        Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
    )


class Own(nn.Module):
    """A user's module: functional layers, both kinds of dropout, no Sequential."""

    def __init__(self, sample_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.mix = nn.Conv2d(sample_shape[0], 6, 3, 2, 1)
        self.drop = nn.Dropout2d(0.3)
        self.out = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, classes]."""
        x = self.drop(torch.nn.functional.gelu(self.mix(x)))
        return self.out(torch.nn.functional.dropout(x.mean((2, 3)), 0.5, self.training))


def pooled(sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Convolutions of few channels, with and without bias, whose outputs have odd sides, and poolings."""
    return nn.Sequential(
        nn.Dropout(0.2),
        nn.Conv2d(sample_shape[0], 5, 3, bias=False),
        nn.MaxPool2d(2),
        nn.Tanh(),
        nn.Conv2d(5, 7, (2, 1)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(42, classes),
    )


WORKS: dict[str, tuple[Maker, tuple[int, ...], Inputs]] = {
    "mlp with dropout": (mlp, (1, 10, 10), GREY),
    "cnn with crop and flip": (cnn, (3, 16, 16), COLOUR),
    "convolutions and poolings": (pooled, (2, 13, 15), Inputs(1 / 255)),
    "resnet": (tiny_resnet, (3, 8, 8), COLOUR),
    "own module": (Own, (3, 8, 8), COLOUR),
    "flat features": (lambda shape, classes: nn.Sequential(nn.Linear(shape[0], classes)), (7,), Inputs()),
}


def task_of(name: str, dtype: torch.dtype = torch.float64, device: str = "cpu", batch_size: int = 4) -> Task:
    """A small task; the samples are the same on every device."""
    maker, shape, inputs = WORKS[name]
    draw = torch.Generator().manual_seed(1)
    images = len(shape) == 3
    x = torch.randint(0, 256, (60, *shape), generator=draw, dtype=torch.uint8) if images else torch.randn(
        60, *shape, generator=draw
    )  # fmt: skip
    y = torch.randint(0, 10, (60,), generator=draw)
    place = torch.device(device)
    network = build(maker, shape, 10, 0).to(place, dtype)
    members = torch.randperm(60, generator=draw).to(place)
    return Task(network, x.to(place), y.to(place), x[:17].to(place), y[:17].to(place), inputs, members, batch_size,
                place, dtype)  # fmt: skip


def models_of(task: Task) -> Tensor:
    """Two models [2, parameters], alike but not the same."""
    start = task.network.flat().detach()
    draw = torch.Generator().manual_seed(2)
    noise = torch.randn(2, len(start), generator=draw, dtype=torch.float64).to(start)
    return start + 0.02 * noise


def uneven(models: Tensor) -> Jobs:
    """Clients of 1 to 21 samples, in the middle of their epochs, with 0 to 7 steps, at different learning rates."""
    size = torch.tensor([10, 1, 5, 21, 4, 3])
    return Jobs(
        models=models,
        model_of=torch.tensor([0, 1, 1, 0, 1, 0]),
        offset=size.cumsum(0) - size,
        size=size,
        key=torch.arange(6) * 977 + 3,
        first=torch.tensor([0, 3, 1, 2, 9, 40]),
        steps=torch.tensor([3, 1, 0, 7, 5, 3]),
        lr=torch.tensor([0.05, 0.01, 0.05, 0.1, 0.02, 0.05], dtype=torch.float64),
    )


STEPPERS: dict[str, Callable[[Task], Stepper | None]] = {
    "its own choice": lambda task: None,
    "vmap": AnyModule,
    "recorded vmap": lambda task: CapturedModule(task, "float32"),
    "lanes": lambda task: Lanes(task, "float32"),
    "lanes, channels last": lambda task: Lanes(task, "tf32"),
}


def together(task: Task, how: str) -> Together:
    """The engine with that stepper."""
    return Together(task, "float32", STEPPERS[how](task))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", STEPPERS)
@pytest.mark.parametrize("name", WORKS)
def test_together_equals_one_by_one(name: str, how: str, device: str) -> None:
    task = task_of(name, device=device)
    models = models_of(task)
    found = together(task, how).train(uneven(models))
    expected = OneByOne(task).train(uneven(models))
    assert expected.moves[[0, 1, 3, 4, 5]].abs().amax(1).min() > 1e-4  # all that shall move do
    torch.testing.assert_close(found.moves, expected.moves, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", WORKS)
def test_float32_is_float64_within_rounding(name: str, device: str) -> None:
    exact = task_of(name)
    models = models_of(exact).to(torch.float32)
    expected = OneByOne(exact).train(uneven(models.to(torch.float64))).moves
    task, models = task_of(name, torch.float32, device), models.to(device)
    for engine in (OneByOne(task), Together(task), Together(task, "float32", Lanes(task, "float32"))):
        error = engine.train(uneven(models)).moves.cpu().to(torch.float64) - expected
        assert error.norm() < 1e-3 * expected.norm()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", STEPPERS)
@pytest.mark.parametrize("name", ["mlp with dropout", "cnn with crop and flip", "own module"])
def test_a_job_alone_is_the_job_among_others(name: str, how: str, device: str) -> None:
    task = task_of(name, device=device)
    jobs = uneven(models_of(task))
    engine = together(task, how)
    among = engine.train(jobs)
    for j in (0, 3, 4):
        alone = engine.train(jobs.take(torch.tensor([j])))
        torch.testing.assert_close(alone.moves[0], among.moves[j], rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(alone.loss[0], among.loss[j], rtol=1e-11, atol=1e-12)


@pytest.fixture
def same_cores() -> Iterator[None]:
    """Puts the number of PyTorch's threads back after the test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("same_cores")
@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("side", [8, 28])
def test_a_small_network_comes_out_alike_to_the_bit_whoever_shares_the_batch(side: int, cores: int) -> None:
    draw = torch.Generator().manual_seed(5)
    x = torch.randint(0, 256, (700, 1, side, side), generator=draw, dtype=torch.uint8)
    y = torch.randint(0, 10, (700,), generator=draw)
    network, members = build(mlp, (1, side, side), 10, 0), torch.arange(700)
    task = Task(network, x, y, x, y, GREY, members, 32, torch.device("cpu"), torch.float32)
    size, steps = torch.full((25,), 28), torch.full((25,), 6)
    noise = 0.02 * torch.randn(25, network.size, generator=draw)
    jobs = Jobs(network.flat().detach() + noise, torch.arange(25), size.cumsum(0) - size, size, torch.arange(25) * 31,
                torch.zeros(25, dtype=torch.int64), steps, torch.full((25,), 0.1, dtype=torch.float64))  # fmt: skip
    torch.set_num_threads(cores)
    engine = Together(task)
    among, tested = engine.train(jobs), engine.evaluate(jobs.models)
    for few in (1, 2, 3, 8, 21):
        some = engine.train(jobs.take(torch.arange(few)))
        assert torch.equal(some.moves, among.moves[:few])
        assert torch.equal(some.loss, among.loss[:few])
        assert torch.equal(engine.evaluate(jobs.models[:few])[1], tested[1][:few])
    assert torch.get_num_threads() == cores


@pytest.mark.parametrize("how", STEPPERS)
def test_the_order_of_jobs_changes_nothing(how: str) -> None:
    task = task_of("mlp with dropout")
    jobs, turned = uneven(models_of(task)), torch.tensor([5, 3, 4, 0, 2, 1])
    engine = together(task, how)
    found = engine.train(jobs.take(turned)).moves
    torch.testing.assert_close(found, engine.train(jobs).moves[turned], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", STEPPERS)
@pytest.mark.parametrize("name", WORKS)
def test_every_way_of_testing_agrees(name: str, how: str, device: str) -> None:
    task = task_of(name, device=device)
    models = models_of(task)
    expected = OneByOne(task).evaluate(models)
    found = together(task, how).evaluate(models)
    torch.testing.assert_close(found[0], expected[0], rtol=1e-14, atol=0)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("how", STEPPERS)
@pytest.mark.parametrize("piece", [1, 2, 5])
def test_pieces_give_the_same(how: str, piece: int) -> None:
    task = task_of("mlp with dropout")
    jobs = uneven(models_of(task))
    whole = together(task, how).train(jobs)
    engine = together(task, how)
    engine.piece = piece
    cut = engine.train(jobs)
    torch.testing.assert_close(cut.moves, whole.moves, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(cut.loss, whole.loss, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["mlp with dropout", "cnn with crop and flip", "convolutions and poolings"])
def test_what_is_made_ahead_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(name)
    jobs = uneven(models_of(task))
    whole = Together(task).train(jobs)
    for ahead, drawn in ((2, 2**20), (3, 1), (1, 1)):
        monkeypatch.setattr("ccfed.training.chain.AHEAD", ahead)
        monkeypatch.setattr("ccfed.training.layers.DRAWN_AT_ONCE", drawn)
        again = Together(task).train(jobs)
        assert torch.equal(again.moves, whole.moves)
        torch.testing.assert_close(again.loss, whole.loss, rtol=1e-12, atol=1e-12)


def test_of_equal_sums_the_first_is_pooled() -> None:
    task = task_of("cnn with crop and flip")
    flat = replace(task, train_x=torch.full_like(task.train_x, 128))
    jobs = uneven(models_of(task))
    torch.testing.assert_close(Together(flat).train(jobs).moves, OneByOne(flat).train(jobs).moves, rtol=1e-9, atol=1e-9)


class Refusing(AnyModule):
    """A stepper that has no memory for more than two jobs."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.asked: list[int] = []
        self.released = 0

    def advance(self, params: Tensor, jobs: Jobs, dealt: batches.BatchPlan) -> Tensor:
        """Runs out of memory with three jobs or more."""
        self.asked.append(len(jobs))
        if len(jobs) > 2:
            raise torch.OutOfMemoryError("no memory for so many")
        return super().advance(params, jobs, dealt)

    def release(self) -> None:
        """Counts."""
        self.released += 1


def test_out_of_memory_halves_the_piece_and_goes_on() -> None:
    task = task_of("mlp with dropout")
    jobs = uneven(models_of(task))
    stepper = Refusing(task)
    engine = Together(task, "float32", stepper)
    found = engine.train(jobs)
    torch.testing.assert_close(found.moves, OneByOne(task).train(jobs).moves, rtol=1e-9, atol=1e-9)
    assert stepper.asked == [5, 3, 2, 1, 2]  # the sixth job has no steps to make
    assert stepper.released == 2
    engine.train(jobs)
    assert stepper.asked[5:] == [2, 2, 1]  # and it remembers


def test_a_single_job_without_memory_fails() -> None:
    class Full(Refusing):
        def advance(self, params: Tensor, jobs: Jobs, dealt: batches.BatchPlan) -> Tensor:
            raise torch.OutOfMemoryError("no memory at all")

    task = task_of("mlp with dropout")
    engine = Together(task, "float32", Full(task))
    with pytest.raises(torch.OutOfMemoryError):
        engine.train(uneven(models_of(task)))


@pytest.mark.parametrize("how", STEPPERS)
def test_jobs_without_steps_do_not_move(how: str) -> None:
    task = task_of("mlp with dropout")
    jobs = uneven(models_of(task))
    engine = together(task, how)
    idle = engine.train(replace(jobs, steps=torch.zeros(6, dtype=torch.int64)))
    assert torch.equal(idle.moves, torch.zeros_like(idle.moves))
    assert torch.equal(idle.loss, torch.zeros(6, dtype=torch.float64))
    assert engine.train(jobs.take(torch.zeros(0, dtype=torch.int64))).moves.shape == (0, task.network.size)


@pytest.mark.parametrize("how", ["recorded vmap", "lanes"])
def test_what_is_kept_serves_smaller_and_larger_rounds(how: str) -> None:
    task = task_of("mlp with dropout")
    jobs = uneven(models_of(task))
    engine = together(task, how)
    whole = OneByOne(task).train(jobs).moves
    for some in ([0, 4], [3], [0, 1, 2, 3, 4, 5], [1, 5]):
        which = torch.tensor(some)
        torch.testing.assert_close(engine.train(jobs.take(which)).moves, whole[which], rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("same_cores")
@pytest.mark.parametrize("cores", [2, 4])
@pytest.mark.parametrize("name", ["mlp with dropout", "cnn with crop and flip"])
def test_cores_with_jobs_of_their_own_give_the_same(name: str, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    monkeypatch.setattr("ccfed.training.together.CACHE_BYTES", 1)
    task = task_of(name)
    engine = Together(task)
    assert len(engine.beside) == cores
    jobs = uneven(models_of(task))
    whole = OneByOne(task).train(jobs).moves
    for some in ([0, 1, 2, 3, 4, 5], [3], [4, 0], [5, 0, 1], [1, 3, 4, 5]):
        which = torch.tensor(some)
        torch.testing.assert_close(engine.train(jobs.take(which)).moves, whole[which], rtol=1e-9, atol=1e-9)


def test_bfloat16_rounds_products_only() -> None:
    task = task_of("cnn with crop and flip", torch.float32)
    jobs = uneven(models_of(task))
    exact = OneByOne(task).train(jobs).moves
    found = Together(task, "bfloat16", Lanes(task, "bfloat16")).train(jobs).moves
    assert found.dtype == torch.float32
    error = float((found - exact).norm() / exact.norm())
    assert 1e-5 < error < 0.2


def test_networks_that_mix_samples_are_refused_in_one_sentence() -> None:
    norm = nn.BatchNorm1d(5, track_running_stats=False)
    WORKS["mixing"] = (lambda shape, classes: nn.Sequential(nn.Linear(7, 5), norm, nn.Linear(5, 10)), (7,), Inputs())
    try:
        task = task_of("mixing")
        heard: list[str] = []
        with pytest.raises(ValueError, match=r"--engine is 'together'.*GroupNorm\): use one-by-one"):
            make(task, "together")
        jobs = uneven(models_of(task)).take(torch.tensor([0, 4]))  # BatchNorm itself refuses batches of one
        assert choose(task, jobs, "auto", heard.append).name == "one-by-one"
        assert any("engine auto passes over" in sentence for sentence in heard)
    finally:
        del WORKS["mixing"]


class Recurrent(nn.Module):
    """A long short-term memory, for which vmap knows no way."""

    def __init__(self, sample_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(1, 4, batch_first=True)
        self.out = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, classes]."""
        return self.out(self.cells(x[..., None])[0][:, -1])


class Deciding(nn.Module):
    """Python decides by the parameters what comes next."""

    def __init__(self, sample_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.out = nn.Linear(sample_shape[0], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores [B, classes]."""
        return self.out(x) if float(self.out.bias.detach().sum()) > 0 else 2 * self.out(x)


@pytest.mark.parametrize("maker", [Recurrent, Deciding])
@pytest.mark.parametrize("device", DEVICES)
def test_a_network_that_cannot_be_run_side_by_side_is_trained_one_by_one(maker: Maker, device: str) -> None:
    WORKS["not side by side"] = (maker, (7,), Inputs())
    try:
        task = task_of("not side by side", torch.float32, device)
        with pytest.raises(ValueError, match=r"--engine is 'together', which cannot train this model \(.*\): use one"):
            make(task, "together")
        heard: list[str] = []
        jobs = uneven(models_of(task))
        engine = choose(task, jobs, "auto", heard.append)
        assert heard[0].startswith("engine auto passes over 'together', which cannot train this model (")
        torch.testing.assert_close(engine.train(jobs).moves, OneByOne(task).train(jobs).moves)
    finally:
        del WORKS["not side by side"]


def test_running_statistics_are_refused_in_one_sentence() -> None:
    with pytest.raises(ValueError, match=r"running statistics.*use GroupNorm"):
        build(nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5)), (7,), 10, 0)


@pytest.mark.parametrize("name", ["mlp with dropout", "own module"])
def test_auto_says_what_it_measured_and_picked(name: str) -> None:
    task = task_of(name)
    heard: list[str] = []
    engine: Engine = choose(task, uneven(models_of(task)), "auto", heard.append)
    assert engine.name in heard[-1]
    assert "client-steps a second" in heard[-1]
    assert "together" in heard[-1]
    assert "one-by-one" in heard[-1]


def test_engines_that_are_none_are_refused() -> None:
    task = task_of("flat features")
    with pytest.raises(ValueError, match="--engine is 'fast', but it must be one of auto, one-by-one"):
        make(task, "fast")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="--engine is 'streams', which needs a GPU"):
            make(task, "streams")


def test_sizes_of_graphs_waste_a_quarter_at_most() -> None:
    for many in range(1, 3000):
        assert many <= rounded(many) <= 1.25 * many + 1
    assert len({rounded(many) for many in range(1, 3000)}) < 50
