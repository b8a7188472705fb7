"""`ccfed bench` measures what it says it measures: the same work by all, really done."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch

from ccfed.bench import WORKS, Work, compare_engines, compare_methods, made_up, plain, plain_rounds, works_for
from ccfed.bench.works import COLOUR, GREY
from ccfed.cli import main
from ccfed.data import Inputs

CPU = torch.device("cpu")
TINY = Work("tiny", "mlp", federations=2, clients=4, participation=0.5, steps=3, batch_size=8)


def test_a_work_counts_its_trainings() -> None:
    assert (TINY.selected, TINY.jobs) == (2, 4)
    assert {name: work.jobs for name, work in WORKS.items()} == {
        "mlp-20": 20, "mlp-80": 80, "mlp-2000": 2000, "cnn-8": 8, "cnn-64": 64, "resnet18-8": 8,
    }  # fmt: skip
    assert set(works_for(CPU)) | set(works_for(torch.device("cuda"))) == set(WORKS)


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS.keys())
def test_few_trainings_are_like_the_many(work: Work) -> None:
    few = work.few()
    assert few.jobs <= 16
    assert few.jobs <= work.jobs
    assert (few.model, few.clients, few.batch_size) == (work.model, work.clients, work.batch_size)
    if work.jobs <= 16:
        assert few == work


def test_made_up_images_are_always_the_same_and_of_all_labels() -> None:
    first, again = made_up((1, 4, 4), GREY, 60, 20), made_up.__wrapped__((1, 4, 4), GREY, 60, 20)
    assert torch.equal(first.train_x, again.train_x)
    assert torch.equal(first.test_y, again.test_y)
    assert (first.train_x.dtype, tuple(first.train_x.shape), len(first.test_x)) == (torch.uint8, (60, 1, 4, 4), 20)
    assert set(first.train_y.tolist()) == set(range(10))


def test_the_plain_loop_deals_every_sample_once_an_epoch() -> None:
    labels = torch.arange(21)
    client = plain.Client(labels[:, None].to(torch.uint8), labels, Inputs(), torch.Generator().manual_seed(0))
    batches = [y for _, y in client.batches(steps=6, size=8)]
    assert [len(y) for y in batches] == [8, 8, 5, 8, 8, 5]
    for epoch in (batches[:3], batches[3:]):
        assert Counter(torch.cat(epoch).tolist()) == dict.fromkeys(range(21), 1)


def test_the_plain_loop_crops_and_flips_where_the_work_asks_for_it() -> None:
    images = torch.randint(1, 256, (40, 3, 32, 32), dtype=torch.uint8)
    client = plain.Client(images, torch.arange(40), COLOUR, torch.Generator().manual_seed(0))
    cropped = client._cropped(images)
    assert cropped.shape == images.shape
    assert bool((cropped == 0).any())  # the black border
    moved = (cropped != images).flatten(1).any(1)
    assert int(moved.sum()) > 30


def test_the_plain_loop_really_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies: list[float] = []
    measure = plain._accuracy
    monkeypatch.setattr(plain, "_accuracy", lambda *given: accuracies.append(measure(*given)) or accuracies[-1])
    easy = made_up((1, 28, 28), GREY, 400, 100)
    for part in ("train", "test"):  # an image as bright as its label says
        x, y = getattr(easy, f"{part}_x"), getattr(easy, f"{part}_y")
        x[:] = (25 * y).to(torch.uint8)[:, None, None, None]
    work = Work("easy", "mlp", 1, 4, 1.0, 100, 16, lr=0.05)
    monkeypatch.setattr(Work, "dataset", lambda self: easy)
    assert len(plain_rounds(work, 3, CPU)) == 3
    assert accuracies[-1] > 0.5


@pytest.mark.slow
def test_engines_take_turns_at_the_same_work() -> None:
    told: list[str] = []
    paces = compare_engines(TINY, ("one-by-one", "together", "streams"), CPU, rounds=2, passes=2, say=told.append)
    assert [pace.work for pace in paces] == ["tiny"] * 4
    assert [len(pace.rates) for pace in paces] == [4, 4, 4, 0]
    for pace in paces[:3]:
        assert pace.steps == [pace.jobs * TINY.steps] * 4
        assert min(pace.rates) <= pace.median <= max(pace.rates)
    assert "needs a GPU" in paces[3].refused
    assert len(told) == 3 * 2 + 1


@pytest.mark.slow
def test_methods_are_compared_by_what_they_really_made() -> None:
    work = Work("tiny", "mlp", federations=1, clients=8, participation=1.0, steps=2, batch_size=8)
    saving = compare_methods(work, "together", CPU, rounds=8, passes=1, say=lambda sentence: None)
    assert saving.steps == [15 / 32]  # p = 1, 1, 1/2, 1/2, 1/4, 1/4, 1/8, 1/8
    assert len(saving.seconds) == 1


@pytest.mark.slow
def test_the_command_prints_a_table_and_keeps_every_round(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "bench.json"
    words = ["--works", "mlp-20", "--engines", "together", "--steps", "2", "--rounds", "1", "--passes", "2"]
    assert main(["bench", *words, "--methods", "--device", "cpu", "--out", str(out)]) == 0
    told = capfd.readouterr().out
    assert re.search(r"mlp-20 +plain loop +20 +1 +[\d,]+ ", told)
    assert re.search(r"mlp-20 +together \(chain of layers\) +20 ", told)
    assert "cc-fedavg at beta = 4 makes" in told
    kept = json.loads(out.read_text())
    assert torch.__version__ in kept["machine"]
    assert [len(pace["seconds"]) for pace in kept["paces"]] == [2, 2]
    assert len(kept["savings"][0]["seconds"]) == 2


BAD = {
    "--works mlp-21": ["--works is 'mlp-21'", "did you mean 'mlp-20'"],
    "--engines fast": ["--engines is 'fast'", "together"],
    "--device gpu": ["--device is 'gpu'", "auto, cpu, cuda"],
    "--rounds 0": ["--rounds is 0", "at least 1"],
    "--passes 0": ["--passes is 0", "at least 1"],
    "--steps 0": ["--steps is 0", "at least 1"],
    "--out nowhere/bench.json": ["--out is 'nowhere/bench.json'", "does not exist"],
}


@pytest.mark.parametrize("options", BAD)
def test_bad_input_is_told_in_one_sentence(options: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *options.split()]) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1
    for words in BAD[options]:
        assert words in told.err
