"""One settings object behind command line, TOML and Python."""

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccfed.algorithm.methods import METHODS
from ccfed.simulation import Settings, experiments_of

text = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)


@given(
    data=text, clients=st.integers(1, 10**6), iid=st.floats(0, 1), p=st.lists(st.floats(0.001, 1), max_size=4),
    keep=st.sampled_from([None, "client", "server", "mixed"]), lr=st.floats(1e-9, 10),
    seed=st.integers(-(2**62), 2**62),
)  # fmt: skip
def test_settings_survive_their_file(
    tmp_path_factory: pytest.TempPathFactory, data: str, clients: int, iid: float, p: list[float], keep: str | None,
    lr: float, seed: int,
) -> None:  # fmt: skip
    settings = Settings(data=data, clients=clients, iid=iid, p=tuple(p), keep=keep, lr=lr, seed=seed)
    path = tmp_path_factory.getbasetemp() / "settings.toml"
    path.write_text(settings.to_toml(), encoding="utf-8")
    assert Settings.from_toml(path) == settings
    assert tomllib.loads(path.read_text(encoding="utf-8"))["clients"] == clients


def test_a_file_that_names_some_settings_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text('rounds = 7\nbatch-size = 4\nbeta = 2\np = 0.5\nbudgets = "explicit"\n')
    assert Settings.from_toml(path) == Settings(rounds=7, batch_size=4, beta=2.0, p=(0.5,), budgets="explicit")


def test_every_setting_is_explained() -> None:
    source = Path(__import__("ccfed.simulation.settings", fromlist=["x"]).__file__).read_text()
    for field in fields(Settings):
        after = source.split(f"    {field.name}: ", 1)[1].split("\n", 1)[1].lstrip()
        assert after.startswith('"""'), field.name


@pytest.mark.parametrize("name", METHODS)
def test_every_method_can_be_named(name: str) -> None:
    method = Settings(method=name).check().make_method()
    assert method.name == name
    assert method.p is None if name == "fedavg" else torch.equal(method.p, Settings().make_budgets())


def test_choices_reach_the_method() -> None:
    chosen = Settings(method="strategy-2", schedule="round-robin", keep="mixed").make_method()
    assert (chosen.schedule.name, chosen.keep) == ("round-robin", "mixed")
    assert Settings(method="fedavg", schedule="round-robin").make_method().schedule.name == "always"
    assert Settings(method="dropout", schedule="round-robin").make_method().schedule.name == "quota"
    assert Settings(method="mifa").make_method().keep == "server"
    adam = Settings(method="fedopt", server_optimizer="adam", server_lr=0.5).make_method()
    assert adam.server.name == "adam(lr=0.5)"
    momentum = Settings(method="fedopt", server_momentum=0.9).make_method()
    assert momentum.server.name == "sgd(lr=1, momentum=0.9)"


def test_an_energy_plan_from_joules() -> None:
    settings = Settings(budgets="energy", joules=(100.0,), joules_per_training=(1.0, 2.0, 4.0, 8.0) * 2, rounds=100)
    assert settings.make_budgets().tolist() == [1.0, 0.5, 0.25, 0.12] * 2


def test_experiments_share_data_and_split() -> None:
    made = experiments_of(Settings(rounds=2), ("fedavg", "cc-fedavg"), (0, 1))
    assert [(e.name, e.seed) for e in made] == [("fedavg", 0), ("cc-fedavg", 0), ("fedavg", 1), ("cc-fedavg", 1)]
    assert len({id(e.federation.data) for e in made}) == 1
    assert made[0].federation is made[1].federation
    assert made[0].federation is not made[2].federation


def test_options_that_nothing_looks_at_are_told() -> None:
    assert Settings().unused() == []
    chosen = Settings(alpha=0.1, p=(0.5,), tau=3, schedule="round-robin", method="fedavg")
    assert [sentence.split()[0] for sentence in chosen.unused()] == ["--alpha", "--p", "--schedule", "--tau"]
    assert chosen.unused()[0] == "--alpha is not used: it is for --split dirichlet"
    assert [sentence.split()[0] for sentence in chosen.unused(("fedavg", "cc-fedavg-c"))] == ["--alpha", "--p"]
    right = Settings(split="dirichlet", alpha=0.1, budgets="explicit", p=(0.5,), method="cc-fedavg-c", tau=3)
    assert right.unused() == []


def test_momentum_for_a_server_that_has_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--server-momentum is 0\.9, but --server-optimizer adam takes none"):
        Settings(method="fedopt", server_optimizer="adam", server_momentum=0.9).make_method()
