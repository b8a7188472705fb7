"""Numbers that are no longer finite, and models that fail: round and client are named, and nothing is spoilt."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import ccfed
from ccfed import budgets, methods
from ccfed.algorithm import View
from ccfed.data import Federation
from ccfed.simulation import Diverged, Experiment, TrainingFailed, run
from ccfed.simulation.checkpoint import Checkpoint
from ccfed.simulation.checkpoints import FOLDER, Checkpoints
from ccfed.simulation.folder import RunFolders
from ccfed.simulation.running import Running

P = budgets.levels(8, 4)
SHORT = {"rounds": 6, "steps": 2, "batch_size": 16}


def nan_from_round_3(view: View) -> Tensor:
    return view.last_move * (torch.nan if view.round >= 3 else 1.0)


def experiments(federation: Federation) -> list[Experiment]:
    chosen = [
        methods.cc_fedavg(P, "round-robin", estimator=nan_from_round_3, name="broken"),
        methods.cc_fedavg(P, "round-robin"),
    ]
    return [Experiment(method, federation, ccfed.models.mlp, rounds=6, steps=2) for method in chosen]


def test_an_estimate_that_is_nan_stops_with_the_last_good_state(digits_of_8: Federation, tmp_path: Path) -> None:
    made = experiments(digits_of_8)
    folders = {(e.name, e.seed): tmp_path / e.name for e in made}
    with pytest.raises(
        Diverged, match=r"round 3: the move that estimator 'nan_from_round_3' gives for client 2 is not"
    ):
        run(made, observers=[Checkpoints(folders), RunFolders(folders)], engine="together")
    states = {}
    for e in experiments(digits_of_8):
        running = Running(e, e.make_network().flat(), 0)
        Checkpoint.of(tmp_path / e.name / FOLDER, running).restore(running)
        assert torch.isfinite(running.state.model).all()
        assert len(running.records) == running.state.round
        assert len((tmp_path / e.name / "rounds.csv").read_text().splitlines()) == 1 + running.state.round
        states[e.name] = running.state.round
    assert states == {"broken": 3, "cc-fedavg": 4}  # who is sound has played the round to its end


def test_the_others_go_on_without_a_federation_that_diverges(digits_of_8: Federation) -> None:
    broken, sound = run(experiments(digits_of_8), on_divergence="leave out", engine="together").all
    alone = run(experiments(digits_of_8)[1:], engine="together").all[0]
    assert (len(broken.records), len(sound.records)) == (3, 6)
    assert np.array_equal(sound.model, alone.model)


def test_a_test_loss_that_is_not_finite_stops_the_run(digits_of_8: Federation) -> None:
    """One step at a huge rate: loss and move are finite, and what the model makes of the test samples is not."""
    with pytest.raises(Diverged, match=r"round 0: the global model's loss on the test samples is (nan|inf) \(fedavg"):
        ccfed.simulate(digits_of_8, methods.fedavg(), rounds=1, steps=1, lr=1e30)


class Fails(nn.Module):
    """A linear model that fails at the fifth batch that it trains on."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(64, 10)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Scores, while it can."""
        self.calls += self.training
        if self.calls == 5 + 1:  # one call before: whether it can be trained at all
            raise ArithmeticError("cannot bear it")
        return self.scores(x.flatten(1))


def test_the_reference_engine_names_the_client_whose_training_fails(digits_of_8: Federation) -> None:
    with pytest.raises(
        TrainingFailed,
        match=r"round 0: the training of client 2 failed \(fedavg, seed 0\): ArithmeticError: cannot bear it",
    ) as caught:
        ccfed.simulate(digits_of_8, methods.fedavg(), model=lambda: Fails(), engine="one-by-one", **SHORT)
    assert isinstance(caught.value.__cause__, ArithmeticError)


@pytest.mark.parametrize("engine", ["one-by-one", "together"])
def test_a_network_of_ones_own_stays_as_it_is(digits_of_8: Federation, engine: str) -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
    before = copy.deepcopy(network.state_dict())
    first, again = (
        ccfed.simulate(digits_of_8, methods.fedavg(), model=network, engine=engine, **SHORT).all[0] for _ in range(2)
    )
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not network.training
    assert np.array_equal(first.model, again.model)


class Recurrent(nn.Module):
    """Rows of a picture one after another."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.cells = nn.LSTM(8, 12, num_layers=2, dropout=dropout, batch_first=True)
        self.scores = nn.Linear(12, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores from the last row's state."""
        return self.scores(self.cells(x[:, 0])[0][:, -1])


class Noisy(nn.Module):
    """Adds noise of its own to what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Scores, with noise in training."""
        x = x.flatten(1)
        return self.scores(x + torch.randn_like(x) if self.training else x)


class Counting(Noisy):
    """Counts its batches in a buffer, and scales its scores by that; another buffer is filled once."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("batches", torch.zeros(()))
        self.register_buffer("ones", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """Scores, smaller from batch to batch."""
        self.ones = torch.ones(())
        if self.training:
            self.batches += 1
        return self.scores(x.flatten(1)) * self.ones / (1 + self.batches)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Counting, "(Counting) changes its buffer 'batches' whenever it is trained"),
        (lambda: Recurrent(0.5), "(Recurrent) draws random numbers that no seed repeats"),
        (Noisy, "(Noisy) draws random numbers that no seed repeats"),
        (lambda: nn.Sequential(nn.Flatten(), nn.AlphaDropout(), nn.Linear(64, 10)), "alpha_dropout"),
    ],
)
def test_randomness_that_no_seed_repeats_is_refused(
    digits_of_8: Federation, make: Callable[[], nn.Module], told: str
) -> None:
    before = torch.random.get_rng_state()
    with pytest.raises(ValueError, match="--model") as caught:
        ccfed.simulate(digits_of_8, methods.fedavg(), model=make, **SHORT)
    assert told in str(caught.value)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_recurrent_network_without_it_is_trained(digits_of_8: Federation) -> None:
    runs = ccfed.simulate(digits_of_8, methods.fedavg(), model=lambda: Recurrent(0.0), **SHORT)
    assert len(runs.all[0].records) == 6


def test_weights_that_are_none_are_refused(digits_of_8: Federation) -> None:
    with pytest.raises(ValueError, match="--weights is 'sample'; did you mean 'samples'"):
        ccfed.simulate(digits_of_8, methods.fedavg(), weights="sample")  # type: ignore[arg-type]


def test_a_precision_that_is_none_is_refused(digits_of_8: Federation) -> None:
    with pytest.raises(ValueError, match="--precision is 'half'; it must be one of float32, tf32, bfloat16"):
        ccfed.simulate(digits_of_8, methods.fedavg(), precision="half")  # type: ignore[arg-type]
