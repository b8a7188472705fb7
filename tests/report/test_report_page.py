"""The page says what the folders say, escapes what they say, and stays small."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from folders import arrays_of, rows_of

from ccfed.cli import main
from ccfed.report import find_runs, lines_of, make_page, read_run

MEGABYTE = 10**6


class Reader(HTMLParser):
    """The tables' cells, the elements by name, and the script of data."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.data = ""
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in = "data" if dict(attrs).get("id") == "data" else tag
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = "cell" if tag == "span" else ""

    def handle_data(self, data: str) -> None:
        if self._in == "data":
            self.data += data
        elif self._in not in ("script", "style"):
            self.text += data
            if self.rows and self._in in ("td", "th", "span", "cell"):
                self.rows[-1][-1] += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def page_of(*folders: Path) -> str:
    return make_page(lines_of([read_run(folder) for folder in find_runs(folders)]))


def test_the_command_writes_the_page_and_tells_its_path(
    compared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "page.html"
    assert main(["report", str(compared), "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}\n"
    assert out.read_text() == page_of(compared)
    assert main(["report", str(compared), "--out", str(compared)]) == 0
    assert (compared / "report.html").read_text() == page_of(compared)


@pytest.mark.parametrize("words", [["report"], ["report", "nowhere"], ["report", "."]])
def test_bad_input_is_one_sentence_and_exit_code_2(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("ccfed report: DIR is ")
    assert told.err.count("\n") == 1
    assert not (tmp_path / "report.html").exists()


def test_a_file_that_cannot_be_written_is_one_sentence_and_exit_code_1(
    compared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = compared / "table.md" / "page.html"
    assert main(["report", str(compared), "--out", str(inside)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_the_cost_table_has_the_means_of_the_summaries(compared: Path) -> None:
    summaries = [json.loads((compared / f"cc-fedavg-seed-{seed}" / "summary.json").read_text()) for seed in (0, 1)]
    row = next(row for row in read(page_of(compared)).rows if row[0] == "cc-fedavg" and len(row) == 11)
    accuracies = [summary["accuracy_last"] for summary in summaries]
    assert row[1] == f"{np.mean(accuracies):.1f} ± {np.std(accuracies, ddof=1):.1f} %"
    steps = np.mean([summary["client_steps"] for summary in summaries])
    assert row[3] == f"{steps:,.0f}"
    assert row[4] == f"{100 * np.mean([summary['compute_saved'] for summary in summaries]):.0f} %"
    flops = steps * int(arrays_of(compared / "cc-fedavg-seed-0", "federation")["step_flops"])
    assert row[5] == f"{flops / 1e6:.3g} MFLOP"
    assert row[6] == f"{flops * 20e-12 * 1e6:.3g} µJ"
    assert row[9] == f"{np.mean([summary['storage_client_bytes'] for summary in summaries]) / 1000:.1f} kB"


def test_the_figures_have_the_numbers_of_the_files(compared: Path) -> None:
    data = json.loads(read(page_of(compared)).data)
    line = next(line for line in data["lines"] if line["label"] == "cc-fedavg")
    assert line["seeds"] == [0, 1]
    assert line["rounds"] == list(range(1, 13))
    for s in (0, 1):
        rows = rows_of(compared / f"cc-fedavg-seed-{s}")
        assert line["accuracy"][s] == pytest.approx([float(row["accuracy"]) for row in rows])
        steps = np.cumsum([int(row["client_steps"]) for row in rows]).tolist()
        assert line["client_steps"][s] == steps
        shown = next(m for m in data["maps"] if data["lines"][m["line"]]["label"] == "cc-fedavg" and m["seed"] == s)
        folder = compared / f"cc-fedavg-seed-{s}"
        told = arrays_of(folder, "participation")
        assert shown["trained"] == told["trained"].sum(0).tolist()
        assert shown["selected"] == told["selected"].sum(0).tolist()
        assert shown["p"] == arrays_of(folder, "federation")["p"].tolist()
        assert data["held"][shown["held"]]["counts"] == arrays_of(folder, "federation")["counts"].tolist()
    assert len(data["held"]) == 1, "who holds what is the same in all these runs"


def test_differences_in_settings_are_marked(compared: Path) -> None:
    for seed in (0, 1):
        path = compared / f"cc-fedavg-seed-{seed}" / "experiment.toml"
        path.write_text(path.read_text().replace("lr = 0.05", "lr = 0.1"))
    reader = read(page_of(compared))
    rows = [row for row in reader.rows if row[0] in ("method", "fedavg", "cc-fedavg") and len(row) == 2]
    assert rows == [["method", "lr"], ["fedavg", "0.05"], ["cc-fedavg", "0.1"]]
    marked = [attributes for tag, attributes in reader.elements if tag == "td" and attributes.get("class") == "other"]
    assert len(marked) == 1


def test_what_a_folder_does_not_tell_is_no_difference(compared: Path) -> None:
    for seed in (0, 1):
        on_devices = compared / f"cc-fedavg-seed-{seed}" / "experiment.toml"
        on_devices.write_text(f'clients = 6\nrounds = 12\nschedule = "live"\nseed = {seed}\n')
    reader = read(page_of(compared))
    heads = [row for row in reader.rows if row[:1] == ["method"]]
    assert ["method", "schedule"] in heads
    marked = [attributes for tag, attributes in reader.elements if tag == "td" and attributes.get("class") == "other"]
    assert len(marked) == 1
    assert "lr0.05" in reader.text, "among what all lines share"


def test_unfinished_and_damaged_runs_are_named(compared: Path) -> None:
    (compared / "fedavg-seed-0" / "summary.json").write_text("{")
    torn = compared / "cc-fedavg-seed-1"
    (torn / "summary.json").unlink()
    (torn / "participation.npz").unlink()
    (torn / "rounds.csv").write_text("".join((torn / "rounds.csv").read_text().splitlines(keepends=True)[:4]))
    text = read(page_of(compared)).text
    assert "cc-fedavg, seed 1: on its way, or broken off, after 3 of 12 rounds: left out of means" in text
    assert "fedavg, seed 0: summary.json cannot be read." in text
    assert text.count("left out of means") == 1


def test_a_run_that_has_only_begun_makes_a_page(compared: Path) -> None:
    run = compared / "cc-fedavg-seed-0"
    for name in ("summary.json", "participation.npz", "federation.npz"):
        (run / name).unlink()
    (run / "rounds.csv").write_text((run / "rounds.csv").read_text().splitlines()[0] + "\n")
    reader = read(page_of(run))
    assert "No run has played a round yet." in reader.text
    assert json.loads(reader.data)["lines"][0]["rounds"] == []
    assert not any("card" in (attributes.get("class") or "") for _, attributes in reader.elements), "a card is empty"


def test_what_files_say_cannot_become_markup(compared: Path) -> None:
    evil = """</script><script>alert(1)</script><img src=x onerror="alert(1)">&amp;'"""
    honest = read(page_of(compared))
    for seed in (0, 1):
        run = compared / f"cc-fedavg-seed-{seed}"
        told = json.loads((run / "summary.json").read_text()) | {"method": evil, "engine": evil, "device": evil}
        (run / "summary.json").write_text(json.dumps(told))
        toml = (run / "experiment.toml").read_text()
        toml = (
            toml.replace('model = "mlp"', f"model = {json.dumps(evil)}") + f"{json.dumps(evil)} = {json.dumps(evil)}\n"
        )
        (run / "experiment.toml").write_text(toml)
        arrays = arrays_of(run, "federation")
        arrays["classes"] = np.array([evil] * 10)
        np.savez(run / "federation.npz", allow_pickle=False, **arrays)
        run.rename(compared / f"<b>&{seed}")
    reader = read(page_of(compared))
    kinds = {tag for tag, _ in reader.elements}
    assert kinds <= {tag for tag, _ in honest.elements}
    assert "img" not in kinds
    assert [tag for tag, _ in reader.elements].count("script") == 2
    assert not any(name.startswith("on") for _, attributes in reader.elements for name in attributes)
    data = json.loads(reader.data)
    assert evil in [line["label"] for line in data["lines"]]
    assert any(table["classes"][0] == evil for table in data["held"])
    assert evil in reader.text


def test_nothing_is_fetched(compared: Path) -> None:
    page = page_of(compared)
    reader = read(page)
    for _, attributes in reader.elements:
        for name in ("src", "href", "action", "srcset"):
            assert attributes.get(name, "data:") == "data:,"[: len(attributes.get(name, "data:") or "")]
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", page.split('id="data"')[0])
    assert "default-src 'none'" in page


def test_numbers_that_are_not_finite_do_no_harm(compared: Path) -> None:
    path = compared / "strategy-1-seed-0" / "rounds.csv"
    lines = path.read_text().splitlines()
    cells = lines[5].split(",")
    lines[5] = ",".join([cells[0], "nan", "inf", *cells[3:]])
    path.write_text("\n".join(lines) + "\n")
    data = json.loads(read(page_of(compared)).data)
    line = next(line for line in data["lines"] if line["label"] == "strategy-1")
    assert line["accuracy"][0][4] is None
    assert line["loss"][0][4] is None


def test_runs_on_devices_may_not_measure_accuracy_nor_know_who_holds_what(compared: Path) -> None:
    for seed in (0, 1):
        run = compared / f"cc-fedavg-seed-{seed}"
        header, *rows = (run / "rounds.csv").read_text().splitlines()
        unknown = [",".join([row.split(",")[0], "nan", "nan", *row.split(",")[3:]]) for row in rows]
        if seed == 0:
            unknown[4] = rows[4]
        (run / "rounds.csv").write_text("\n".join([header, *unknown]) + "\n")
        told = arrays_of(run, "federation")
        np.savez(run / "federation.npz", allow_pickle=False, p=told["p"], parameters=told["parameters"])
        summary = json.loads((run / "summary.json").read_text()) | {"failed": 2, "refused": 0, "accuracy_last": None}
        (run / "summary.json").write_text(json.dumps(summary))
    known = float(rows_of(compared / "cc-fedavg-seed-0")[4]["accuracy"])
    row = next(row for row in read(page_of(compared)).rows if row[0] == "cc-fedavg" and len(row) == 11)
    assert row[1] == row[2] == f"{known:.1f} %"
    assert row[5] == row[6] == "–"
    reader = read(page_of(compared / "cc-fedavg-seed-1"))
    assert "has played 12 rounds; its accuracy was not measured." in reader.text
    assert "finished, 2 failed" in reader.text
    assert "nan" not in reader.text


def test_long_runs_that_were_measured_now_and_then_keep_what_was_measured(compared: Path) -> None:
    run = compared / "cc-fedavg-seed-0"
    header, row = (run / "rounds.csv").read_text().splitlines()[:2]
    tail = row.split(",", 3)[3]
    rows = [f"{t},{t / 100 if t % 10 == 9 else 'nan'},nan,{tail}" for t in range(2000)]
    (run / "rounds.csv").write_text("\n".join([header, *rows]) + "\n")
    (line,) = json.loads(read(page_of(run)).data)["lines"]
    assert line["rounds"] == list(range(10, 2001, 10))
    assert line["accuracy"][0] == [t / 100 for t in range(9, 2000, 10)]
    assert line["client_steps"][0][-1] == 2000 * int(tail.split(",")[4])
    assert line["every_round"], "nothing that was measured is left out"


def test_long_runs_of_many_clients_make_a_small_page(compared: Path) -> None:
    run = compared / "cc-fedavg-seed-0"
    rounds, clients = 20_000, 100_000
    header, row = (run / "rounds.csv").read_text().splitlines()[:2]
    tail = row.split(",", 1)[1]
    (run / "rounds.csv").write_text("\n".join([header, *(f"{t},{tail}" for t in range(rounds))]) + "\n")
    draw = np.random.default_rng(0)
    np.savez(
        run / "federation.npz",
        p=np.ones(clients),
        step_flops=np.array(10),
        classes=np.array([f"class {c}" for c in range(200)]),
        counts=draw.integers(0, 9, (clients, 200), dtype=np.uint8),
    )
    ids, starts = draw.integers(0, clients, 100 * rounds), np.arange(0, 100 * rounds + 1, 100)
    np.savez(
        run / "participation.npz", selected_ids=ids, selected_starts=starts, trained_ids=ids, trained_starts=starts
    )
    shutil.rmtree(compared / "fedavg-seed-0")
    page = page_of(compared)
    assert len(page) < MEGABYTE
    data = json.loads(read(page).data)
    shown = next(m for m in data["maps"] if m["clients"] == clients)
    assert sum(shown["selected"]) * shown["part"]["step"] == pytest.approx(100 * rounds, rel=0.01)


def test_many_runs_make_a_bounded_page(compared: Path, tmp_path: Path) -> None:
    many = tmp_path / "many"
    for i in range(120):
        run = Path(shutil.copytree(compared / "cc-fedavg-seed-0", many / f"run-{i}"))
        toml = (run / "experiment.toml").read_text()
        (run / "experiment.toml").write_text(toml.replace("lr = 0.05", f"lr = {0.01 * (i + 1):.2f}"))
    page = page_of(many)
    data = json.loads(read(page).data)
    assert len(data["lines"]) == 120
    assert len(data["maps"]) == 48
    assert all(shown["part"]["rows"] == len(shown["p"]) for shown in data["maps"]), "rows are the same clients"
    assert "The page has room for 48 runs." in page
    assert len(page) < 2 * MEGABYTE
