"""Bad input ends with exit code 2 and one sentence that names the option, the value and what is allowed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

BAD = {
    "--budgets explicit --p 0": ["--p is 0.0 for client 0", "(0, 1]"],
    "--budgets explicit --p 1 1 1 1 1 1 1 1.5": ["--p is 1.5 for client 7", "(0, 1]"],
    "--budgets explicit --p nan": ["--p is nan", "(0, 1]"],
    "--budgets explicit --p 1 0.5": ["--p has 2 values", "8 clients"],
    "--budgets explicit": ["--p is missing"],
    "--budgets levles": ["--budgets is 'levles'", "did you mean 'levels'"],
    "--budgets groups --r 2": ["--r is 2", "[0, 1]"],
    "--budgets groups --W 0": ["--W is 0", "at least 1"],
    "--beta -1": ["--beta is -1"],
    "--budgets energy": ["--trainings", "--joules"],
    "--budgets energy --trainings 1 2": ["--trainings has 2 values", "8"],
    "--budgets energy --trainings 0": ["--trainings: client 0 can afford 0 trainings", "at least 1"],
    "--budgets energy --joules 9 --joules-per-training 10": ["--joules: client 0 can afford 0.9 trainings"],
    "--clients 1438": ["--clients 1438", "1437 training samples"],
    "--clients 0": ["--clients is 0", "at least 1"],
    "--method cc-fedavq": ["--method is 'cc-fedavq'", "did you mean 'cc-fedavg'"],
    "--model mpl": ["--model is 'mpl'", "did you mean 'mlp'", "module:function"],
    "--data digit": ["--data 'digit'", "did you mean digits"],
    "--split shard": ["--split is 'shard'", "did you mean 'shards'"],
    "--schedule adhoc": ["--schedule is 'adhoc'", "did you mean 'ad-hoc'"],
    "--keep cloud": ["--keep is 'cloud'", "client, server, mixed"],
    "--device gpu": ["--device is 'gpu'", "auto, cpu, cuda"],
    "--device cuda:9": ["--device is 'cuda:9'", "GPU"],
    "--engine fast": ["--engine is 'fast'", "one-by-one"],
    "--participation 0": ["--participation is 0.0", "(0, 1]"],
    "--participation 1.01": ["--participation is 1.01", "(0, 1]"],
    "--participation nan": ["--participation is nan", "(0, 1]"],
    "--iid 1.1": ["--iid is 1.1", "[0, 1]"],
    "--split dirichlet --alpha 0": ["--alpha is 0.0", "above 0"],
    "--steps 99999999999999999999999": ["--steps is 99999999999999999999999", "at most 1000000000"],
    "--rounds 0": ["--rounds is 0", "at least 1"],
    "--steps -3": ["--steps is -3", "at least 1"],
    "--batch-size 0": ["--batch-size is 0", "at least 1"],
    "--lr 0": ["--lr is 0.0", "above 0"],
    "--lr -0.1": ["--lr is -0.1", "above 0"],
    "--lr nan": ["--lr is nan", "finite"],
    "--lr inf": ["--lr is inf", "finite"],
    "--tau -1": ["--tau is -1", "at least 0"],
    "--model nowhere:net": ["--model is 'nowhere:net'", "nowhere"],
    "--model torch.nn:Nothing": ["--model is 'torch.nn:Nothing'", "Nothing"],
    "--model math:pi": ["--model is 'math:pi'", "not a function"],
    "--model math:prod": ["--model is 'prod'", "not an nn.Module"],
    "--model cnn": ["--model is 'cnn'", "16x16", "(1, 8, 8)"],
    "--model bad_models:too_narrow": ["--model (Sequential)", "does not take samples of shape (1, 8, 8)"],
    "--model bad_models:too_few": ["--model (Sequential)", "10 classes need (2, 10)"],
    "--model bad_models:with_batch_norm": ["BatchNorm1d", "GroupNorm"],
    "--model bad_models:scripted": ["--model is a ScriptModule", "the module it was made from"],
    "--model bad_models:lazy": ["--model has lazy layers", "give their sizes"],
    "--model bad_models:without_parameters": ["--model has trainable parameters of type none"],
    "--model bad_models:broken": ["--model is 'broken'", "ZeroDivisionError"],
    "--method fedavg --budgets explicit --p 0": ["--p is 0.0 for client 0"],
    "--beta 1e9": ["--beta is 1e+09", "the last p_i would be 0"],
    "--server-lr 0": ["--server-lr is 0.0", "above 0"],
    "--model bad_models:refuses": ["--model is 'refuses'", "ValueError: not today"],
    "--model bad_models:asserts": ["--model (Asserts)", "AssertionError"],
    "--model bad_imports:net": ["--model is 'bad_imports:net'", "KeyError: 'home'"],
    "--model :net": ["--model is ':net'"],
    "--model .net:net": ["--model is '.net:net'"],
    "--model bad_models:with_noise": ["--model (Noisy)", "random numbers that no seed repeats"],
    "--config nowhere.toml": ["--config is 'nowhere.toml'"],
}


@pytest.mark.parametrize("options", BAD)
def test_bad_input_is_told_in_one_sentence(
    ccfed: Callable[..., object], options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(Path(__file__).parent)
    said = ccfed("run", *options.split(), "--out", "run")
    assert said.code == 2
    (sentence,) = said.err.strip().splitlines()
    assert sentence.startswith("ccfed run: ")
    for words in BAD[options]:
        assert words in sentence
    assert said.out == ""
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rounds = 'ten'", ["rounds", "'ten'", "int"]),
        ("round = 3", ["'round'", "did you mean 'rounds'"]),
        ("weights = 'even'", ["weights", "'even'", "equal"]),
        ("weights = 3", ["weights", "3", "str"]),
        ("p = [1, 'x']", ["p", "'x'", "float"]),
        ("rounds = ", ["--config", "cannot be read"]),
    ],
)
def test_a_bad_settings_file_is_told_in_one_sentence(
    ccfed: Callable[..., object], text: str, words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    said = ccfed("run", "--config", path, "--out", tmp_path / "run")
    assert said.code == 2
    (sentence,) = said.err.strip().splitlines()
    for word in words:
        assert word in sentence


def test_a_folder_with_another_run_is_left_alone(ccfed: Callable[..., object], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    said = ccfed("run", "--rounds", 1, "--out", tmp_path)
    assert said.code == 2
    assert "--out" in said.err
    assert "--resume" in said.err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    said = ccfed("run", "--rounds", 1, "--out", tmp_path / "notes.txt")
    assert said.code == 2
    assert "notes.txt', which is a file: name a folder" in said.err


def test_a_cluster_that_does_not_answer_leaves_no_folder(ccfed: Callable[..., object], tmp_path: Path) -> None:
    said = ccfed("compare", "--rounds", 1, "--out", tmp_path / "new", "--ray", "127.0.0.1:9")
    assert said.code == 2
    assert "--ray" in said.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["rnu"], "did you mean 'run'"), (["run", "--rouns", "3"], "--rouns"), (["run", "--seed", "x"], "x")],
)
def test_words_that_are_none_are_named(ccfed: Callable[..., object], words: list[str], hint: str) -> None:
    said = ccfed(*words)
    assert said.code == 2
    assert hint in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "options", [("--methods", "fedavg", "fedavg"), ("--seeds", "1", "1"), ("--methods", "fedavg", "cc-fedavgg")]
)
def test_a_comparison_of_the_same_or_of_nothing_is_refused(
    ccfed: Callable[..., object], options: tuple[str, ...], tmp_path: Path
) -> None:
    said = ccfed("compare", *options, "--out", tmp_path / "run")
    assert said.code == 2
    assert said.err.startswith(f"ccfed compare: {options[0]} is ")
    assert not (tmp_path / "run").exists()


def test_a_run_that_is_refused_late_leaves_nothing(
    ccfed: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    out = tmp_path / "run"
    said = ccfed("run", "--model", "bad_models:with_statistics_of_the_batch", "--engine", "together", "--out", out)
    assert said.code == 2
    assert "--engine is 'together', which cannot train this model" in said.err
    assert not out.exists()
    said = ccfed("compare", "--ray", "127.0.0.1:1", "--out", out)
    assert said.code == 2
    assert not out.exists()


LITTLE = """
import resource, sys
from ccfed.cli import main
resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("options", ["--steps 1000000000 --engine together", "--data synthetic --samples 1000000000"])
def test_too_little_memory_is_told_in_one_sentence(options: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", LITTLE, "run", *options.split(), "--out", "run"]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert said.returncode == 1
    sentence = said.stderr.strip().splitlines()[-1]
    assert sentence.startswith("ccfed run: there is not enough memory, no room for ")
    assert "--batch-size" in sentence
