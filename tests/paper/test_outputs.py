"""What is left of a table or figure: rows, tables, verdicts and pictures."""

import csv
import io
import math
import re
from dataclasses import replace
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from ccfed.paper import report, theory
from ccfed.paper.catalogue import PLANS
from ccfed.paper.claims import CLAIMS, Found, Numbers, plan_of
from ccfed.paper.figures import convergence
from ccfed.paper.grid import r_w
from ccfed.paper.outputs import Verdict, allowed, cell_text, csv_text, markdown, verdict, write
from ccfed.paper.participation import raster_of
from ccfed.paper.plan import Cut, Entry, cut_down
from ccfed.paper.published import Published
from ccfed.paper.store import Store
from ccfed.paper.studies import SILO_CIFAR10, method
from ccfed.paper.tables import compare_combination, silo_cifar

from .conftest import TINY, made_up


@pytest.fixture(autouse=True)
def short_theory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment with known constants over few rounds."""
    monkeypatch.setattr(theory, "ROUNDS", (16, 32))
    theory.measured.cache_clear()


def filled(store: Store, entry: Entry, *values: float) -> Entry:
    for cell, value in zip(entry.cells, values, strict=False):
        store.add(made_up(cell, value))
    return entry


def test_single_numbers_agree_within_two_and_a_half_points(empty: Store) -> None:
    for value, expected in ((52.5, Verdict.REPRODUCED), (47.5, Verdict.REPRODUCED), (52.6, Verdict.OFF)):
        entry = Entry((), replace(TINY, seed=0, lr=value / 100), paper=Published(50.0))
        assert verdict(filled(empty, entry, value), empty) is expected


def test_several_seeds_agree_within_two_combined_deviations(empty: Store) -> None:
    entry = Entry((), TINY, seeds=(0, 1, 2), paper=Published(50.1, 0.6))
    filled(empty, entry, 52.0, 52.8, 51.2)  # 52 ± 0.8; with 0.6 of theirs that is 1 together
    assert allowed(entry, empty) == pytest.approx(2.0)
    assert verdict(entry, empty) is Verdict.REPRODUCED
    assert verdict(replace(entry, paper=Published(49.9, 0.6)), empty) is Verdict.OFF
    assert cell_text(replace(entry, paper=Published(49.9, 0.6)), empty) == "52.00 ± 0.80 (49.90 ± 0.60) *"


def test_nothing_is_compared_before_all_seeds_are_run(empty: Store) -> None:
    entry = Entry((), TINY, seeds=(0, 1, 2), paper=Published(50.0, 0.6))
    assert cell_text(entry, empty) == "not run yet (50.00 ± 0.60)"
    filled(empty, entry, 90.0)
    assert verdict(entry, empty) is Verdict.NOT_RUN
    assert cell_text(entry, empty) == "90.00 [1 of 3 seeds] (50.00 ± 0.60)"


def test_the_table_of_runs_has_one_row_a_run_with_ours_theirs_and_the_difference(empty: Store) -> None:
    plan = compare_combination()
    entry = plan.entries[0]
    filled(empty, entry, 50.0)
    rows = list(csv.DictReader(io.StringIO(csv_text(plan, empty))))
    assert len(rows) == sum(len(e.seeds) for e in plan.entries)
    assert (rows[0]["ours"], rows[0]["paper"], rows[0]["difference"]) == ("50.00", "48.76", "1.24")
    assert rows[0]["--p"] == "0.125 x2, 0.25 x2, 0.5 x2, 1 x2"
    assert rows[0]["--steps"] == "300"
    assert (rows[1]["ours"], rows[1]["difference"], rows[1]["seed"]) == ("", "", "1")


def test_the_table_is_laid_out_as_in_the_paper(as_published: Store) -> None:
    text = markdown(silo_cifar(), as_published)
    assert "## round-robin" in text
    assert "## ad-hoc" in text
    assert "| method \\ iid | 0.0 | 0.1 | 0.2 | 0.5 | 1.0 |" in text
    assert "| Strategy 1 | 30.79 (30.79) | 55.18 (55.18) | 61.35 (61.35) | 67.72 (67.72) | 69.46 (69.46) |" in text
    assert "Reproduced: 60 of 60 numbers that were run (0 not run yet)" in text


def test_a_table_that_was_not_run_says_so(empty: Store) -> None:
    text = markdown(silo_cifar(), empty)
    assert "| CC-FedAvg | not run yet (56.28)" in text
    assert "Reproduced: 0 of 0 numbers that were run (60 not run yet)" in text
    assert text.count("not run yet") == 61


def test_the_efficiency_table_runs_from_full_work_to_the_least(as_published: Store) -> None:
    text = markdown(PLANS["efficiency"](), as_published)
    assert text.count("| method \\ W | 1 | 2 | 4 | 8 | 16 |") == 2
    assert "| CC-FedAvg |  | 66.02 (66.02) | 65.52 (65.52) | 63.04 (63.04) | 38.96 (38.96) |" in text


def test_the_distance_table_tells_distances(as_published: Store, empty: Store) -> None:
    plan = PLANS["distance"]()
    text = markdown(plan, as_published)
    assert "| 0.1 | CC-FedAvg | **last move** | 1.0000 | 0.9900 | 0.5000 |" in text
    assert "| 0.0 | Strategy 2 | **last model** | 2.0000 | 0.9800 | 0.3333 |" in text
    rows = list(csv.DictReader(io.StringIO(csv_text(plan, as_published))))
    assert len(rows) == 8  # two methods, two shares of IID data, two estimates
    assert (rows[0]["estimate"], rows[0]["euclidean"], rows[0]["rounds"]) == ("last move", "1.0", "399")
    assert "| 0.1 | CC-FedAvg | **last move** | not run yet |  |  |" in markdown(plan, empty)


QUICK = ("silo-cifar", "efficiency", "theory", "convergence")
EVERY = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PLANS]


@pytest.mark.parametrize("name", EVERY)
def test_every_picture_is_drawn(name: str, as_published: Store, tmp_path: Path) -> None:
    paths = write(PLANS[name](), as_published, tmp_path)
    assert [path.name for path in paths] == [f"{name}{suffix}" for suffix in (".csv", ".md", ".png", ".pdf")]
    assert all(path.stat().st_size > 100 for path in paths)
    assert not blank(matplotlib.image.imread(tmp_path / f"{name}.png"))
    pdf = paths[-1].read_bytes()
    assert b"/CIDFontType2" in pdf  # TrueType
    assert b"/Type3" not in pdf


@pytest.mark.parametrize(
    "name",
    ["efficiency", *(pytest.param(n, marks=pytest.mark.slow) for n in ("silo-cifar", "r-W", "distance", "cost"))],
)
def test_what_is_not_run_is_drawn_differently(name: str, as_published: Store, empty: Store) -> None:
    full, bare = (picture(PLANS[name]().draw(PLANS[name](), store)) for store in (as_published, empty))
    assert not blank(bare)
    assert full.shape != bare.shape or bool((full != bare).any())


def picture(figure: Figure) -> np.ndarray:
    """The dots of a figure, few of them."""
    out = io.BytesIO()
    figure.savefig(out, dpi=50)
    out.seek(0)
    dots: np.ndarray = matplotlib.image.imread(out)
    return dots


def blank(picture: np.ndarray) -> bool:
    """Whether fewer than one dot in a hundred differs from the background."""
    return bool((np.abs(picture[..., :3] - picture[0, 0, :3]).max(-1) > 0.2).mean() < 0.01)


def test_the_same_numbers_give_the_same_files(as_published: Store, tmp_path: Path) -> None:
    plan = PLANS["efficiency"]()
    first, second = (write(plan, as_published, tmp_path / name) for name in ("a", "b"))
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_the_resnet_panels_say_that_they_are_not_run(as_published: Store) -> None:
    figure = convergence().draw(convergence(), as_published)
    texts = {axes.get_title(): [text.get_text() for text in axes.texts] for axes in figure.axes}
    assert {title for title, found in texts.items() if found == ["not run yet"]} == {
        "CIFAR-10, ResNet-18, IID 0",
        "CIFAR-100, ResNet-18, IID 0.1",
    }


def test_who_took_part_follows_the_schedule() -> None:
    raster = raster_of(replace(method(SILO_CIFAR10, "cc-fedavg", "round-robin"), rounds=16))
    trained = raster == 3
    assert trained[:, 0].all()  # everyone in round 0
    assert trained.sum(1).tolist() == [2, 2, 4, 4, 8, 8, 16, 16]
    assert set(np.unique(raster)) == {2, 3}  # who does not train is estimated
    silent = raster_of(replace(method(SILO_CIFAR10, "strategy-1", "round-robin"), rounds=16))
    assert set(np.unique(silent)) == {1, 3}


def test_the_papers_own_numbers_bear_out_the_claims_that_are_put_to_the_test(as_published: Store) -> None:
    rests_on_numbers = [c for c in CLAIMS if c.plan.startswith(("silo", "device", "compare", "r-W"))]
    assert len(rests_on_numbers) == 11
    for claim in rests_on_numbers:
        found = claim.check(as_published)
        assert found is not None
        assert found.holds, f"{claim.text} {found.text}"


def test_a_claim_without_runs_is_not_run_yet_and_a_wrong_one_does_not_hold(empty: Store, as_published: Store) -> None:
    claim = CLAIMS[0]
    assert claim.check(empty) is None
    wrong = Store(empty.path.parent)
    for run in as_published:
        spoilt = replace(run, accuracy=(20.0,) * run.rounds) if run.settings["method"] == "cc-fedavg" else run
        wrong._finished[run.key] = spoilt
    found = claim.check(wrong)
    assert found is not None
    assert not found.holds


def test_a_claim_waits_for_all_seeds(as_published: Store, empty: Store) -> None:
    for claim in CLAIMS:
        if not claim.plan.startswith("device"):
            continue
        some = Store(empty.path.parent)
        plan = plan_of(claim.plan)
        missing = {plan.entries[0].cells[0].key, plan.entries[-1].cells[4].key}
        some._finished |= {run.key: run for run in as_published if run.key not in missing}
        assert claim.check(as_published) is not None
        assert claim.check(some) is None
        assert "not run yet" in report.report(some)


def test_where_seeds_differ_by_more_than_methods_a_claim_stays_open(as_published: Store, empty: Store) -> None:
    claim = next(claim for claim in CLAIMS if claim.plan == "device-fmnist2")
    plan = plan_of("device-fmnist2")

    def with_last(values: tuple[float, ...]) -> Store:
        """CC-FedAvg at 10 % ends so, Strategy 2 always at 60, Strategy 1 at 50."""
        changed = Store(empty.path.parent)
        changed._finished |= {run.key: run for run in as_published}
        last = {"CC-FedAvg": values, "Strategy 1": (50.0,) * 5, "Strategy 2": (60.0,) * 5}
        for name, numbers in last.items():
            entry = Numbers(plan, changed).entry(method=name, participation="0.1")
            for cell, number in zip(entry.cells, numbers, strict=True):
                run = as_published.get(cell)
                assert run is not None
                changed._finished[cell.key] = replace(run, accuracy=(number,) * run.rounds)
        return changed

    noisy = claim.check(with_last((40.0, 70.0, 50.0, 75.0, 60.0)))
    assert noisy == Found("3 of 4 participations; at 0.1 behind Strategy 2 by 1.0 ± 6.4", None)
    clear = claim.check(with_last((55.0, 56.0, 57.0, 56.0, 55.0)))
    assert clear is not None
    assert clear.holds is False
    page = report.report(with_last((40.0, 70.0, 50.0, 75.0, 60.0)))
    assert "by 1.0 ± 6.4 | open |" in page


def test_algorithms_are_compared_only_where_their_runs_were_made_in_one_way(empty: Store) -> None:
    plan = PLANS["cost"]()
    claim = next(claim for claim in CLAIMS if claim.plan == "cost")
    for entry in plan.entries:
        empty._finished[entry.cells[0].key] = made_up(entry.cells[0], 70.0)

    def changed(label: str, accuracy: float, machine: str) -> None:
        (entry,) = [entry for entry in plan.entries if entry.label("method") == label]
        run = made_up(entry.cells[0], accuracy)
        empty._finished[run.key] = replace(run, made={**run.made, "machine": machine})

    all_alike = "the same accuracy in every round with 4 of 4 methods; CC-FedAvg: GB up 1.00, 1.00, 1.00"
    assert claim.check(empty) == Found(all_alike, True)
    changed("CC-FedAvg, Algorithm 1", 70.1, "another")
    elsewhere = claim.check(empty)
    assert elsewhere is not None
    assert "with 3 of 3 methods (the others' runs were made on different machines" in elsewhere.text
    assert elsewhere.holds
    changed("Strategy 2, Algorithm 2", 70.1, "none: made up")
    found = claim.check(empty)
    assert found is not None
    assert found.holds is False
    for label in ("Strategy 2", "CC-FedAvg(c)", "FedOpt (all skip together)"):
        changed(f"{label}, Algorithm 3", 70.0, "a third")
    found = claim.check(empty)
    assert found is not None
    assert found.holds is None


def test_the_page_of_results(as_published: Store, empty: Store) -> None:
    page = report.report(as_published)
    assert "| `silo-cifar` | 60 | 60 | 0 | 0 |" in page
    assert "at most 1.15 points below" in page
    assert re.search(r"\| none: made up \| CIFAR-10, CNN \| \d+ \| [\d,]+ \| .* \| [\d,]+ \|\n", page)
    small = {cell.settings for make in PLANS.values() for cell in make().cells if cell.settings.model != "resnet18"}
    assert len(small) == 536
    assert f"Everything but ResNet-18 is {len(small)} runs. {len(small)} of them are made, in" in page
    assert "Numbers that are off" not in page
    nothing = report.report(empty)
    assert f"{len(small)} runs. 0 of them are made; the aim for all of them is 10 minutes" in nothing
    assert "| `silo-cifar` | 60 | 0 | 0 | 60 |" in nothing
    assert nothing.count("| not run yet |  |") == len(CLAIMS) - 1  # the theory is computed on the spot
    off = Store(empty.path.parent)
    for run in as_published:
        off._finished[run.key] = run
    filled(off, silo_cifar().entries[0], 40.0)
    assert "| `silo-cifar` | round-robin, 0.0, FedAvg (full) | 40.00 (56.82) | not known |" in report.report(off)


def test_where_the_papers_logs_tell_it_the_mean_of_the_last_ten_rounds_stands_beside(empty: Store) -> None:
    plan = r_w()
    first = next(e for e in plan.entries if e.label("data") == "Fashion-MNIST" and e.label("method") == "CC-FedAvg")
    run = replace(made_up(first.cells[0], 81.0), accuracy=(*(81.0,) * 399, 60.0))  # the paper: 79.50, and 81.25
    empty.add(run)
    rows = [row for row in csv.DictReader(io.StringIO(csv_text(plan, empty))) if row["ours"]]
    assert [(row["ours"], row["mean_last_10"], row["paper_mean_last_10"]) for row in rows] == [
        ("60.00", "78.90", "81.25")
    ]
    assert "By the mean of the last ten rounds, which swings less than the last round alone, 1 of 1 agree" in markdown(
        plan, empty
    )
    page = report.report(empty)
    (line,) = [line for line in page.splitlines() if line.startswith("| `r-W` | Fashion-MNIST,")]
    assert "60.00 (79.50); mean of the last ten rounds 78.90 (81.25) | not known |" in line  # 19.5 points are too many
    empty.add(replace(run, accuracy=(*(81.0,) * 399, 70.0)))
    page = report.report(empty)
    assert "70.00 (79.50); mean of the last ten rounds 79.90 (81.25) | (1) |" in page
    assert "\n\n(1) One run and one round: at 20 % participation" in page
    assert "mean_last_10" not in csv_text(silo_cifar(), empty)
    assert "mean of the last ten" not in markdown(silo_cifar(), empty)


@pytest.mark.parametrize("name", EVERY)
def test_shortened_runs_are_drawn_however_few_there_are(name: str, empty: Store, tmp_path: Path) -> None:
    plan = cut_down(PLANS[name](), Cut(rounds=2))  # which the paper has no numbers for
    write(plan, empty, tmp_path)
    for cell in plan.cells[:1]:
        empty._finished[cell.key] = made_up(cell, 50.0)
    assert all(path.stat().st_size > 100 for path in write(plan, empty, tmp_path))


def test_pictures_say_what_is_not_run_and_leave_gaps(empty: Store) -> None:
    plan = compare_combination()
    for entry in plan.entries:
        if entry.label("setting") in ("participation 0.2", "participation 0.6"):
            filled(empty, entry, *(80.0,) * 5)
    figure = plan.draw(plan, empty)
    said = {axes.get_title(): [text.get_text() for text in axes.texts] for axes in figure.axes}
    assert said == {"CIFAR-10, CNN": ["ours: not run yet"], "Fashion-MNIST, MLP": []}
    ours = next(line for line in figure.axes[1].lines if len(line.get_xdata()) == 3)
    assert np.isnan(np.asarray(ours.get_ydata(), dtype=float)).tolist() == [False, True, False]


def test_below_a_table_stands_where_and_with_what_it_was_made(empty: Store) -> None:
    plan = silo_cifar()
    first, second = plan.cells[:2]
    made = {"machine": "a GPU", "engine": "together", "precision": "tf32", "ccfed": "1.0", "note": "source 1a2b3c4"}
    empty.add(replace(made_up(first, 50.0), made={**made, "date": "2026-01-02 10:00 UTC"}))
    empty.add(replace(made_up(second, 50.0), made={**made, "commit": "1a2b3c4", "date": "2026-01-02 09:00 UTC"}))
    assert markdown(plan, empty).endswith(
        "\n\n2 of 40 runs: machine a GPU; engine together; precision tf32; ccfed 1.0; commit 1a2b3c4;"
        " note source 1a2b3c4; from 2026-01-02 09:00 UTC to 2026-01-02 10:00 UTC.\n"
    )


def test_no_number_is_made_of_nothing(empty: Store) -> None:
    assert math.isnan(empty.mean(silo_cifar().entries[0]))
