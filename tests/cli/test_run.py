"""`ccfed run` and `ccfed compare` from end to end: what they leave, what they print and where."""

import csv
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

SHORT = ("--rounds", 5, "--steps", 3)

Ccfed = Callable[..., object]


def rows_of(folder: Path, without: tuple[str, ...] = ("seconds",)) -> list[dict[str, str]]:
    with (folder / "rounds.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k not in without} for row in csv.DictReader(file)]


def test_a_run_leaves_its_folder(ccfed: Ccfed, tmp_path: Path) -> None:
    out = tmp_path / "run"
    said = ccfed("run", *SHORT, "--participation", 0.5, "--out", out)
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1] == str(out)
    needed = {"experiment.toml", "rounds.csv", "participation.npz", "federation.npz", "summary.json", "accuracy.png"}
    assert needed <= {path.name for path in out.iterdir()}

    rows = rows_of(out, without=())
    columns = "round accuracy loss selected trained estimated silent client_steps bytes_up bytes_down seconds"
    assert list(rows[0]) == columns.split()
    assert [int(row["round"]) for row in rows] == [0, 1, 2, 3, 4]

    summary = json.loads((out / "summary.json").read_text())
    asked = "method accuracy_last accuracy_best client_steps client_steps_full compute_saved bytes_up bytes_down"
    asked += " storage_client_bytes storage_server_bytes seconds engine device seed ccfed"
    assert set(asked.split()) <= summary.keys()
    assert summary["method"] == "cc-fedavg"
    assert summary["client_steps"] == sum(int(row["client_steps"]) for row in rows)
    assert summary["client_steps_full"] == 5 * 3 * 4
    assert summary["bytes_up"] == sum(int(row["bytes_up"]) for row in rows)
    assert summary["accuracy_last"] == pytest.approx(float(rows[-1]["accuracy"]), abs=1e-3)
    assert summary["accuracy_best"] == pytest.approx(max(float(row["accuracy"]) for row in rows), abs=1e-3)

    took_part = np.load(out / "participation.npz")
    assert took_part["selected"].shape == took_part["trained"].shape == (5, 8)
    assert (took_part["selected"].sum(1) == 4).all()
    assert (took_part["trained"] <= took_part["selected"]).all()
    assert took_part["trained"].sum(1).tolist() == [int(row["trained"]) for row in rows]
    assert took_part["bytes_up"].sum() == summary["bytes_up"]
    each = summary["storage_client_bytes"] // took_part["trained"].any(0).sum()  # whoever trained keeps a move
    assert each == 4 * np.load(out / "federation.npz")["parameters"]
    assert took_part["storage_bytes"].tolist() == (each * took_part["trained"].any(0)).tolist()
    trained_so_far = np.logical_or.accumulate(took_part["trained"]).sum(1)
    assert took_part["storage_client_bytes"].tolist() == (each * trained_so_far).tolist()
    assert not took_part["storage_server_bytes"].any()
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_the_settings_file_repeats_the_run(ccfed: Ccfed, tmp_path: Path) -> None:
    first, second, other = tmp_path / "first", tmp_path / "second", tmp_path / "other"
    options = ("--method", "strategy-2", "--split", "dirichlet", "--alpha", 0.4, "--keep", "server", "--seed", 3)
    options += ("--schedule", "round-robin", "--budgets", "explicit", "--p", 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2)
    assert ccfed("run", *SHORT, *options, "--out", first).code == 0
    assert ccfed("run", "--config", first / "experiment.toml", "--out", second).code == 0
    assert ccfed("run", "--config", first / "experiment.toml", "--seed", 4, "--out", other).code == 0
    assert rows_of(first) == rows_of(second)
    assert rows_of(first) != rows_of(other)
    assert (first / "experiment.toml").read_text() == (second / "experiment.toml").read_text()


def test_a_comparison_leaves_a_table_a_figure_and_a_folder_a_run(ccfed: Ccfed, tmp_path: Path) -> None:
    out = tmp_path / "compared"
    said = ccfed("compare", "--methods", "fedavg", "cc-fedavg", "--seeds", 0, 1, *SHORT, "--out", out)
    assert said.code == 0, said.err
    assert said.out.splitlines()[-1] == str(out)
    folders = {"fedavg-seed-0", "fedavg-seed-1", "cc-fedavg-seed-0", "cc-fedavg-seed-1"}
    assert {path.name for path in out.iterdir() if path.is_dir()} == folders
    table = (out / "table.md").read_text()
    for word in ("fedavg", "cc-fedavg", "±"):
        assert word in table
        assert word in said.out
    assert (out / "accuracy.png").exists()

    alone = tmp_path / "alone"
    assert ccfed("run", *SHORT, "--seed", 1, "--engine", "together", "--out", alone).code == 0
    assert rows_of(alone) == rows_of(out / "cc-fedavg-seed-1")  # side by side or alone: the same


@pytest.mark.slow
def test_the_default_run_in_a_process_of_its_own(process: Ccfed, tmp_path: Path) -> None:
    said = process("run")
    assert said.code == 0, said.err
    *table, folder = said.out.splitlines()
    assert folder.startswith("runs/")
    assert "cc-fedavg" in table[-1]
    assert "engine" in said.err
    assert "round 100/100" in said.err
    assert "engine" not in said.out
    assert json.loads((tmp_path / folder / "summary.json").read_text())["accuracy_last"] > 80


def test_help_explains_every_option_with_its_default(ccfed: Ccfed) -> None:
    said = ccfed("run", "--help")
    assert said.code == 0
    options = """data data-dir clients split iid shards-per-client alpha model method budgets beta r W p schedule keep
        participation rounds steps batch-size lr tau seed device engine out resume config"""
    for option in options.split():
        assert f"--{option}" in said.out, option
    assert "(default: 100)" in said.out


def test_help_and_version(ccfed: Ccfed) -> None:
    from ccfed import __version__

    assert ccfed("--version").out == f"ccfed {__version__}\n"
    for words in ((), ("--help",), ("-h",)):
        said = ccfed(*words)
        assert said.code == 0
        assert "run " in said.out
        assert "compare" in said.out


def test_a_federation_that_diverges_ends_with_a_sentence(ccfed: Ccfed, tmp_path: Path) -> None:
    said = ccfed("run", *SHORT, "--lr", 1e30, "--out", tmp_path / "run")
    assert said.code == 1
    sentence = said.err.strip().splitlines()[-1]
    assert "round 0" in sentence
    assert "client 0" in sentence
    assert "Traceback" not in said.err


def test_options_that_nothing_looks_at_are_told_and_do_no_harm(ccfed: Ccfed, tmp_path: Path) -> None:
    said = ccfed("run", *SHORT, "--alpha", 0.1, "--p", 0.5, 0.5, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "--alpha is not used: it is for --split dirichlet\n" in said.err
    assert "--p is not used: it is for --budgets explicit\n" in said.err
    assert "not used" not in said.out


@pytest.mark.parametrize("schedule", ["", "ad-hoc", "round-robin"])
def test_an_energy_plan_is_kept_or_told_to_be_an_average(ccfed: Ccfed, tmp_path: Path, schedule: str) -> None:
    afford = (12, 6, 5, 4, 3, 2, 1, 40)
    plan = ("--budgets", "energy", "--trainings", *afford, "--rounds", 12, "--steps", 1)
    if schedule:
        plan += ("--schedule", schedule)
    said = ccfed("run", *plan, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert ("--schedule round-robin does" in said.err) == (schedule == "ad-hoc")
    trained = np.load(tmp_path / "run" / "participation.npz")["trained"].sum(0)
    assert (trained.tolist() == [min(12, each) for each in afford]) == (schedule != "ad-hoc")


def test_a_comparison_says_that_it_takes_lists(ccfed: Ccfed, tmp_path: Path) -> None:
    said = ccfed(
        "compare", *SHORT, "--method", "fedavg", "--seed", 3, "--methods", "dropout", "--out", tmp_path / "run"
    )
    assert said.code == 0, said.err
    assert "--method is not used: `ccfed compare` takes --methods\n" in said.err
    assert "--seed is not used: `ccfed compare` takes --seeds\n" in said.err


def test_a_model_in_the_current_folder_is_found(ccfed: Ccfed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nets_of_mine.py").write_text(
        "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [place for place in sys.path if place])
    said = ccfed("run", *SHORT, "--model", "nets_of_mine:net", "--out", "run")
    assert said.code == 0, said.err
