"""What a run's folder tells the report, whole, unfinished or damaged."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from folders import arrays_of, rows_of

from ccfed.report import find_runs, lines_of, make_page, read_run
from ccfed.report.reading import read_participation


def runs_of(folder: Path) -> list[str]:
    return [path.name for path in find_runs([folder])]


def test_a_comparison_holds_its_runs(compared: Path) -> None:
    expected = [f"{method}-seed-{seed}" for method in ("cc-fedavg", "fedavg", "strategy-1") for seed in (0, 1)]
    assert runs_of(compared) == expected
    assert runs_of(compared.parent) == expected, "a folder above"
    single = Path(shutil.copytree(compared / "fedavg-seed-0", compared.parent / "single"))
    assert runs_of(compared.parent) == [*expected, single.name], "runs at several depths"


def test_a_run_given_twice_counts_once(compared: Path) -> None:
    one = compared / "fedavg-seed-0"
    assert find_runs([one, compared / ".." / compared.name / "fedavg-seed-0"]) == [one]


def test_no_folder_or_no_run_is_told(compared: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=r"empty', which holds no run"):
        find_runs([compared, empty])
    with pytest.raises(ValueError, match="which is no folder"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(ValueError, match="DIR is missing"):
        find_runs([])


def test_a_whole_run_tells_what_its_files_hold(compared: Path) -> None:
    folder = compared / "cc-fedavg-seed-1"
    run, summary = read_run(folder), json.loads((folder / "summary.json").read_text())
    rows = rows_of(folder)
    assert (run.method, run.seed, run.played, run.planned, run.clients) == ("cc-fedavg", 1, 12, 12, 6)
    assert run.finished
    assert not run.troubles
    assert run.rounds["accuracy"].tolist() == [float(row["accuracy"]) for row in rows]
    assert run.compute_saved == pytest.approx(summary["compute_saved"])
    assert run.flops == summary["client_steps"] * int(arrays_of(folder, "federation")["step_flops"])


def test_a_run_on_its_way_is_read_as_far_as_it_is(compared: Path) -> None:
    folder = compared / "cc-fedavg-seed-1"
    for name in ("summary.json", "participation.npz"):
        (folder / name).unlink()
    table = (folder / "rounds.csv").read_text().splitlines()
    (folder / "rounds.csv").write_text("\n".join(table[:6]) + "\n5,70.0,1")
    run = read_run(folder)
    assert (run.played, run.planned, run.finished) == (5, 12, False)
    assert run.troubles == ("rounds.csv cannot be read from row 6 on: what stands before it is shown",)
    steps = sum(int(line.split(",")[7]) for line in table[1:6])
    assert run.compute_saved == pytest.approx(1 - steps / (5 * 3 * 2)), "of the rounds so far"


@pytest.mark.parametrize("name", ["experiment.toml", "federation.npz", "summary.json", "rounds.csv"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff junk", b"PK\x03\x04"])
def test_a_damaged_file_is_named_and_the_rest_is_read(compared: Path, name: str, content: bytes) -> None:
    folder = compared / "fedavg-seed-0"
    (folder / name).write_bytes(content)
    run = read_run(folder)
    assert run.method == "fedavg"
    told = [trouble for trouble in run.troubles if trouble.startswith(name)]
    harmless = (name, content) in (("experiment.toml", b""), ("rounds.csv", b""))  # an empty file is a valid one
    assert len(told) == (0 if harmless else 1)
    assert run.troubles == tuple(told)


def test_a_folder_without_settings_is_still_a_run(compared: Path) -> None:
    folder = compared / "strategy-1-seed-1"
    (folder / "experiment.toml").unlink()
    run = read_run(folder)
    assert (run.method, run.seed, run.finished) == ("strategy-1", 1, True)
    (folder / "summary.json").unlink()
    run = read_run(folder)
    assert (run.method, run.seed, run.finished) == ("strategy-1-seed-1", None, False)


def test_runs_that_differ_in_their_seed_are_one_line(compared: Path) -> None:
    lines = lines_of([read_run(folder) for folder in find_runs([compared])])
    assert [(line.label, [run.seed for run in line.runs]) for line in lines] == [
        ("fedavg", [0, 1]),
        ("strategy-1", [0, 1]),
        ("cc-fedavg", [0, 1]),
    ]


def test_settings_tell_lines_of_one_method_apart(compared: Path) -> None:
    path = compared / "cc-fedavg-seed-1" / "experiment.toml"
    path.write_text(path.read_text().replace("lr = 0.05", "lr = 0.1"))
    lines = lines_of([read_run(folder) for folder in find_runs([compared])])
    assert [line.label for line in lines] == ["fedavg", "strategy-1", "cc-fedavg, lr 0.05", "cc-fedavg, lr 0.1"]


def test_where_much_differs_labels_tell_as_much_as_it_takes(compared: Path) -> None:
    one, other = (compared / f"cc-fedavg-seed-{seed}" / "experiment.toml" for seed in (0, 1))
    # As a run on devices, which has few settings, beside a simulated one; and one that differs from it in one thing.
    one.write_text(
        'method = "cc-fedavg"\nclients = 6\nrounds = 20\nweights = "samples"\np = [1.0, 1.0, 0.5, 0.5, 0.25]\n'
    )
    third = Path(shutil.copytree(other.parent, compared / "third")) / "experiment.toml"
    third.write_text(third.read_text().replace("lr = 0.05", "lr = 0.1"))
    labels = [line.label for line in lines_of([read_run(folder) for folder in find_runs([compared])])]
    assert labels[2:] == ["cc-fedavg", "cc-fedavg, lr 0.05", "cc-fedavg, lr 0.1"]
    other.write_text(one.read_text().replace("0.25", "0.125"))
    labels = [line.label for line in lines_of([read_run(folder) for folder in find_runs([compared])])]
    common = "cc-fedavg, rounds 20, weights samples, p 1, 1, … (5 values)"
    expected = [f"{common} (compared/cc-fedavg-seed-{seed})" for seed in (0, 1)]
    assert [labels[2], labels[3]] == expected


def test_a_seed_that_comes_twice_is_not_counted_twice(compared: Path) -> None:
    path = compared / "cc-fedavg-seed-1" / "experiment.toml"
    path.write_text(path.read_text().replace("seed = 1", "seed = 0"))
    summary = compared / "cc-fedavg-seed-1" / "summary.json"
    summary.write_text(summary.read_text().replace('"seed": 1', '"seed": 0'))
    labels = [line.label for line in lines_of([read_run(folder) for folder in find_runs([compared])])]
    assert labels[2:] == [
        "cc-fedavg (compared/cc-fedavg-seed-0)",
        "cc-fedavg (compared/cc-fedavg-seed-1)",
    ]


def test_means_are_those_of_finished_runs_where_there_are_any(compared: Path) -> None:
    path = compared / "cc-fedavg-seed-1" / "rounds.csv"
    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:5]))
    line = lines_of([read_run(folder) for folder in find_runs([compared])])[2]
    assert [run.seed for run in line.counted] == [0]
    assert line.finished
    other = compared / "cc-fedavg-seed-0" / "rounds.csv"
    other.write_text("".join(other.read_text().splitlines(keepends=True)[:8]))
    line = lines_of([read_run(folder) for folder in find_runs([compared])])[2]
    assert [run.seed for run in line.counted] == [0, 1]
    assert (line.finished, line.rounds) == (False, 4)


@pytest.mark.parametrize(
    ("file", "arrays"),
    [
        ("federation", {"p": np.ones((2, 3))}),
        ("federation", {"p": np.array(["x"] * 6)}),
        ("federation", {"classes": np.array(["only one"])}),
        ("federation", {"counts": np.array([["x"] * 10] * 6)}),
        ("federation", {"counts": np.full((5, 10), np.nan)}),
        ("federation", {"step_flops": np.array("x")}),
        ("participation", {"selected": np.ones((12, 6, 2), bool)}),
        ("participation", {"selected": np.ones(12, bool)}),
        ("participation", {"trained": np.ones((3, 6), bool)}),
        ("participation", {"trained": np.full((12, 6), "x")}),
    ],
)
def test_arrays_of_another_shape_are_not_used(compared: Path, file: str, arrays: dict[str, np.ndarray]) -> None:
    folder = compared / "cc-fedavg-seed-0"
    np.savez(folder / f"{file}.npz", allow_pickle=False, **(arrays_of(folder, file) | arrays))
    assert "cc-fedavg" in make_page(lines_of([read_run(folder)]))


@pytest.mark.parametrize(
    ("ids", "starts"),
    [
        ([6], [0, 1]),
        ([-1], [0, 1]),
        ([0, 1], [0, 5]),
        ([0, 1], [1, 2]),
        ([0, 1], [0, 2, 1, 2]),
        ([0.5], [0, 1]),
        ([0], []),
    ],
)
def test_lists_of_clients_that_cannot_be_are_not_used(compared: Path, ids: list[float], starts: list[int]) -> None:
    folder = compared / "cc-fedavg-seed-0"
    given = {"ids": np.array(ids), "starts": np.array(starts, dtype=np.int64)}
    lists = {f"{kind}_{part}": values for kind in ("selected", "trained") for part, values in given.items()}
    np.savez(folder / "participation.npz", allow_pickle=False, **lists)
    assert read_participation(read_run(folder)) == {}
    good = {name: np.array([3] if name.endswith("ids") else [0, 1]) for name in lists}
    np.savez(folder / "participation.npz", allow_pickle=False, **good)
    assert set(read_participation(read_run(folder))) == set(good)


def test_files_damaged_anywhere_never_end_in_a_traceback(compared: Path) -> None:
    folder = compared / "cc-fedavg-seed-0"
    draw = random.Random(0)
    for name in ("experiment.toml", "federation.npz", "participation.npz", "rounds.csv", "summary.json"):
        whole = (folder / name).read_bytes()
        for _ in range(30):
            damaged = bytearray(whole[: draw.randrange(len(whole) + 1)] if draw.random() < 0.3 else whole)
            for _ in range(draw.choice([0, 1, 20]) if damaged else 0):
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            (folder / name).write_bytes(damaged)
            assert make_page(lines_of([read_run(folder)])).endswith("</html>\n")
        (folder / name).write_bytes(whole)
