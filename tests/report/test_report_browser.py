"""The page in a real browser: it draws, it is readable in light, dark and on a phone, it can be used by keyboard, and
it neither complains nor fetches anything."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser
from PIL import Image

from ccfed.report import write_report

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture
def page(compared: Path, browser: Browser) -> Iterator[Path]:
    browser.complaints.clear()
    browser.requests.clear()
    yield write_report([compared], compared / "page.html")
    assert browser.complaints == []
    assert [request for request in browser.requests if not request.startswith(("file:", "data:", "blob:"))] == []


def choose(browser: Browser, where: str, value: str) -> None:
    """Chooses an option of the first choice in a section."""
    script = "(s) => { s.value = VALUE; s.dispatchEvent(new Event('change')) }".replace("VALUE", repr(value))
    browser.run(f"({script})(document.querySelector('{where} select'))")


def pixels(picture: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture)).convert("L"), dtype=np.int64)


@pytest.mark.parametrize("dark", [False, True])
def test_every_figure_is_drawn_in_the_systems_colours(page: Path, browser: Browser, dark: bool) -> None:
    browser.look(1280, 900, dark=dark)
    browser.open(page)
    names = browser.run("[...document.querySelectorAll('figure')].map((each) => each.id)")
    expected = [
        "accuracy",
        "loss",
        "accuracy-for-cost",
        "cost-of-accuracy",
        "who-holds-what",
        "participation",
        "budgets",
    ]
    assert names == [f"figure-{name}" for name in expected]
    for name in ("accuracy", "loss", "accuracy-for-cost"):
        assert browser.run(f"document.querySelectorAll('#figure-{name} .plot .curve').length") == 3
        assert browser.run(f"document.querySelectorAll('#figure-{name} .band').length") == 3
    grey = pixels(browser.picture())
    assert np.median(grey) < 60 if dark else np.median(grey) > 230
    assert grey.std() > 15, "something is drawn"


def test_a_phone_needs_no_sideways_scrolling(page: Path, browser: Browser) -> None:
    browser.look(390, 844, mobile=True)
    browser.open(page)
    assert browser.run("document.documentElement.scrollWidth") == 390
    widths = browser.run(
        "[...document.querySelectorAll('svg.figure')].map((each) => each.getBoundingClientRect().right)"
    )
    assert max(widths) <= 390
    assert pixels(browser.picture()).std() > 15


def test_axes_have_values_on_a_phone_too(page: Path, browser: Browser) -> None:
    browser.look(390, 844, mobile=True)
    browser.open(page)
    for name in ("accuracy", "loss", "accuracy-for-cost"):
        values = f"document.querySelectorAll('#figure-{name} .plot .axis[text-anchor=WHERE]:not(.name)').length"
        assert browser.run(values.replace("WHERE", "end")) >= 3, name
        assert browser.run(values.replace("WHERE", "middle")) >= 3, name


@pytest.mark.parametrize("dark", [False, True])
def test_numbers_can_be_read_on_every_shade(page: Path, browser: Browser, dark: bool) -> None:
    browser.look(1280, 900, dark=dark)
    browser.open(page)
    shades = browser.run("Array.from({ length: 101 }, (_, k) => contrast(colour(k / 100), partsOf(textOn(k / 100))))")
    assert min(shades) > 3.8
    fills = browser.run("[...document.querySelectorAll('.axis.count')].map((each) => getComputedStyle(each).fill)")
    assert len(set(fills)) == 2, "few samples in one colour, many in the other"


def test_long_labels_need_no_sideways_scrolling(compared: Path, page: Path, browser: Browser) -> None:
    for seed in (0, 1):
        path = compared / f"cc-fedavg-seed-{seed}" / "experiment.toml"
        told = path.read_text().replace('data = "digits"', f'data = "a/very/long/path/{"to/" * 60}{seed}.npz"')
        path.write_text(told)
    write_report([compared], page)
    for width, mobile in ((1280, False), (390, True)):
        browser.look(width, 900, mobile=mobile)
        browser.open(page)
        assert browser.run("document.documentElement.scrollWidth") <= width


def test_the_switch_of_colours_wins_over_the_system(page: Path, browser: Browser) -> None:
    browser.look(1280, 900, dark=True)
    browser.open(page)
    browser.run("document.querySelector('button[data-theme=light]').click()")
    assert np.median(pixels(browser.picture())) > 230
    browser.run("document.querySelector('button[data-theme=system]').click()")
    assert np.median(pixels(browser.picture())) < 60


def test_lines_can_be_hidden_and_bands_chosen(page: Path, browser: Browser) -> None:
    browser.look(1280, 900)
    browser.open(page)
    browser.run("document.querySelectorAll('#curves .legend button')[1].click()")
    assert browser.run("document.querySelectorAll('#figure-loss .plot .curve').length") == 2
    assert browser.run("document.querySelectorAll('#worth .legend button')[1].ariaPressed") == "false"
    choose(browser, "#curves", "seeds")
    assert browser.run("document.querySelectorAll('#figure-accuracy .seed').length") == 4


def test_values_are_read_by_pointer_and_by_keyboard(page: Path, browser: Browser) -> None:
    browser.look(1280, 900)
    browser.open(page)
    last = browser.run("data.lines[0].accuracy.map((values) => values.at(-1)).reduce((a, b) => a + b) / 2")
    browser.run("document.querySelector('#figure-accuracy svg.figure').focus()")
    browser.press("End")
    spoken = browser.run("document.querySelector('#figure-accuracy .spoken').textContent")
    assert spoken.startswith("round 12: ")
    assert f"fedavg {last:.1f} %" in spoken
    browser.press("Escape")
    assert browser.run("document.querySelector('.tip').hidden")
    x, y = browser.run(
        "(b => [b.left + b.width / 2, b.top + b.height / 2])"
        "(document.querySelector('#figure-accuracy svg.figure').getBoundingClientRect())"
    )
    browser.point_at(x, y)
    assert "strategy-1" in browser.run("document.querySelector('.tip').textContent")
    browser.run("document.querySelector('#figure-participation svg.figure').focus()")
    browser.press("ArrowRight")
    assert browser.run("document.querySelector('#figure-participation .spoken').textContent").startswith(
        "client 0, round 1:"
    )


def test_the_energy_follows_the_readers_assumption(page: Path, browser: Browser) -> None:
    browser.look(1280, 900)
    browser.open(page)
    cell = "document.querySelector('td[data-flops]')"
    flops = float(browser.run(f"{cell}.dataset.flops"))
    assert browser.run(f"{cell}.textContent") == f"{flops * 20e-12 * 1e6:.3g} µJ"
    browser.run(
        "(i => { i.value = '20000'; i.dispatchEvent(new Event('input')) })(document.querySelector('#assumption input'))"
    )
    assert browser.run(f"{cell}.textContent") == f"{flops * 20e-9 * 1e3:.3g} mJ"


def test_every_figure_gives_its_numbers(compared: Path, page: Path, browser: Browser) -> None:
    browser.look(1280, 900)
    browser.open(page)
    browser.run(
        "globalThis.given = []; const keep = URL.createObjectURL; "
        "URL.createObjectURL = (blob) => { given.push(blob); return keep.call(URL, blob); }; 0"
    )
    browser.run("for (const each of document.querySelectorAll('.saves button')) each.click()")
    texts = browser.run("Promise.all(given.map((blob) => blob.text()))")
    tables = [text for text in texts if not text.startswith("<svg")]
    assert len(tables) == 8
    head, *rows = tables[0].splitlines()
    assert head == "line,round,seeds,accuracy_mean,accuracy_low,accuracy_high"
    assert len(rows) == 3 * 12
    mean = browser.run("data.lines[0].accuracy.map((values) => values[0]).reduce((a, b) => a + b) / 2")
    assert rows[0].startswith("fedavg,1,2,")
    assert float(rows[0].split(",")[3]) == pytest.approx(mean, rel=1e-5)
    costs = next(text for text in tables if text.startswith("line,seeds,accuracy_mean,client_steps")).splitlines()
    row = dict(zip(costs[0].split(","), costs[3].split(","), strict=True))
    summaries = [json.loads((compared / f"cc-fedavg-seed-{seed}" / "summary.json").read_text()) for seed in (0, 1)]
    assert row["line"] == "cc-fedavg"
    for name in ("client_steps", "bytes_up", "storage_client_bytes", "seconds"):
        assert float(row[name]) == pytest.approx(sum(summary[name] for summary in summaries) / 2, rel=1e-4)
    pictures = [text for text in texts if text.startswith("<svg")]
    assert len(pictures) == 6
    broken = "new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror')"
    assert (
        browser.run(
            f"Promise.all(given.map((blob) => blob.text())).then((all) => all.filter((text) => "
            f"text.startsWith('<svg') && {broken}).length)"
        )
        == 0
    )


def test_unfinished_runs_and_strange_names_are_shown(compared: Path, page: Path, browser: Browser) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    run = compared / "cc-fedavg-seed-1"
    for name in ("summary.json", "participation.npz", "federation.npz"):
        (run / name).unlink()
    toml = (run / "experiment.toml").read_text().replace('method = "cc-fedavg"', f'method = "{evil}"')
    (run / "experiment.toml").write_text(toml)
    (run / "rounds.csv").write_text("".join((run / "rounds.csv").read_text().splitlines(keepends=True)[:1]))
    unmeasured = compared / "strategy-1-seed-0" / "rounds.csv"
    header, *rows = unmeasured.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    unmeasured.write_text("\n".join([header, *(",".join([row[0], "nan", "nan", *row[3:]]) for row in cells)]) + "\n")
    write_report([compared], page)
    browser.look(1280, 900)
    browser.open(page)
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert evil in browser.run("document.querySelector('.legend').textContent")
    options = browser.run("[...document.querySelectorAll('#clients select option')].map((each) => each.value)")
    for value in options:
        choose(browser, "#clients", value)
    for cost in ("bytes", "energy", "rounds", "client_steps"):
        choose(browser, "#worth", cost)
    browser.run("for (const each of document.querySelectorAll('.saves button')) each.click()")
    assert browser.run("document.querySelectorAll('#figure-accuracy-for-cost .plot .curve').length") == 3, (
        "no rounds, no curve"
    )


def test_the_saved_costs_have_the_last_accuracy_that_was_measured(compared: Path, page: Path, browser: Browser) -> None:
    for seed in (0, 1):
        path = compared / f"cc-fedavg-seed-{seed}" / "rounds.csv"
        *rows, last = path.read_text().splitlines()
        cells = last.split(",")
        path.write_text("\n".join([*rows, ",".join([cells[0], "nan", "nan", *cells[3:]])]) + "\n")
    write_report([compared], page)
    browser.look(1280, 900)
    browser.open(page)
    browser.run("globalThis.csvs = []; URL.createObjectURL = (blob) => { csvs.push(blob); return 'data:,'; }; 0")
    browser.run("document.querySelector('#costs .saves button').click()")
    (row,) = [row for row in browser.run("csvs[0].text()").splitlines() if row.startswith("cc-fedavg,")]
    shown = browser.run("document.querySelectorAll('#costs tbody tr')[2].children[1].textContent")
    assert f"{float(row.split(',')[2]):.1f}" == shown.split(" ")[0]


def test_a_run_that_measured_nothing_says_so(compared: Path, page: Path, browser: Browser) -> None:
    run = compared / "cc-fedavg-seed-0"
    header, *rows = (run / "rounds.csv").read_text().splitlines()
    cells = [row.split(",") for row in rows]
    (run / "rounds.csv").write_text(
        "\n".join([header, *(",".join([c[0], "nan", "nan", *c[3:]]) for c in cells)]) + "\n"
    )
    (run / "federation.npz").unlink()
    write_report([run], page)
    browser.look(1280, 900)
    browser.open(page)
    for name in ("accuracy", "loss", "accuracy-for-cost"):
        assert browser.run(f"document.querySelector('#figure-{name} .plot').textContent") == "Nothing was measured yet."
    assert browser.run("document.querySelector('#figure-who-holds-what .plot').textContent").startswith(
        "The folder does"
    )
    assert browser.run("document.querySelector('#assumption').textContent").startswith("FLOPs and energy are unknown")
    browser.run("for (const each of document.querySelectorAll('.saves button')) each.click()")


def test_few_rounds_have_a_mark_each(compared: Path, page: Path, browser: Browser) -> None:
    run = compared / "cc-fedavg-seed-0"
    (run / "rounds.csv").write_text("".join((run / "rounds.csv").read_text().splitlines(keepends=True)[:4]))
    write_report([run], page)
    browser.look(1280, 900)
    browser.open(page)
    marks = "[...document.querySelectorAll('#figure-accuracy .plot .axis[text-anchor=middle]:not(.name)')]"
    assert browser.run(f"{marks}.map((each) => each.textContent)") == ["1", "2", "3"]
