"""Thinned curves and binned maps say what the whole says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccfed.records import COLUMNS
from ccfed.report import FolderRun
from ccfed.report.thinning import FEWEST, MOST, POINTS, Bins, chosen_rounds, held, took_part


def a_run(folder: Path, clients: int, **federation: np.ndarray) -> FolderRun:
    nothing = {name: np.zeros(0) for name in COLUMNS}
    return FolderRun(folder, {}, nothing, {"p": np.ones(clients), **federation}, {}, ())


@given(rounds=st.integers(1, 200_000), curves=st.integers(1, 3000))
def test_chosen_rounds_have_both_ends_and_a_bounded_number(rounds: int, curves: int) -> None:
    drawn = chosen_rounds(rounds, curves)
    assert drawn[0] == 0
    assert drawn[-1] == rounds - 1
    assert (np.diff(drawn) > 0).all()
    assert len(drawn) <= min(MOST, max(FEWEST, POINTS // curves))
    if rounds <= FEWEST:
        assert len(drawn) == rounds


@given(count=st.integers(1, 500), limit=st.integers(1, 60))
def test_bins_cover_everything_once(count: int, limit: int) -> None:
    bins = Bins(count, limit)
    assert len(bins.starts) <= limit
    assert bins.sizes.sum() == count
    assert (bins.sizes[:-1] == bins.step).all()
    values = np.arange(count)
    owner = values // bins.step
    assert bins.sums(values).tolist() == np.bincount(owner, weights=values).tolist()


@pytest.mark.parametrize(("clients", "rounds"), [(7, 5), (64, 40), (301, 77)])
def test_maps_count_every_part_taken(tmp_path: Path, clients: int, rounds: int) -> None:
    draw = np.random.default_rng(clients)
    selected = draw.random((rounds, clients)) < 0.4
    trained = selected & (draw.random((rounds, clients)) < 0.5)
    np.savez_compressed(tmp_path / "participation.npz", selected=selected, trained=trained)
    dense = took_part(a_run(tmp_path, clients), rows=16, columns=10)
    assert dense is not None
    for got, whole in ((dense.selected, selected), (dense.trained, trained)):
        expected = np.zeros((len(dense.bins.starts), len(dense.spans.starts)))
        for t, client in zip(*whole.nonzero(), strict=True):
            expected[client // dense.bins.step, t // dense.spans.step] += 1
        assert got.tolist() == expected.tolist()

    lists = {}
    for kind, table in (("selected", selected), ("trained", trained)):
        ids = [row.nonzero()[0] for row in table]
        lists |= {f"{kind}_ids": np.concatenate(ids), f"{kind}_starts": np.cumsum([0, *map(len, ids)])}
    np.savez_compressed(tmp_path / "participation.npz", allow_pickle=False, **lists)
    listed = took_part(a_run(tmp_path, clients), rows=16, columns=10)
    assert listed is not None
    assert listed.selected.tolist() == dense.selected.tolist()
    assert listed.trained.tolist() == dense.trained.tolist()


def test_participation_of_another_federation_is_not_shown(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "participation.npz", selected=np.ones((4, 9), bool), trained=np.ones((4, 9), bool))
    assert took_part(a_run(tmp_path, 8)) is None
    (tmp_path / "participation.npz").write_bytes(b"PK\x03\x04 torn")
    assert took_part(a_run(tmp_path, 9)) is None


def test_who_holds_what_is_averaged_over_clients_and_summed_over_classes(tmp_path: Path) -> None:
    counts = np.arange(50 * 12).reshape(50, 12)
    names = np.array([f"class {c}" for c in range(12)])
    few = held(a_run(tmp_path, 50, counts=counts, classes=names), rows=5, columns=4)
    assert few is not None
    assert few.counts.tolist() == counts.reshape(5, 10, 4, 3).sum((1, 3)).__truediv__(10).tolist()
    assert few.classes == ("class 0 to class 2", "class 3 to class 5", "class 6 to class 8", "class 9 to class 11")
    whole = held(a_run(tmp_path, 50, counts=counts, classes=names))
    assert whole is not None
    assert whole.counts.tolist() == counts.tolist()
    assert held(a_run(tmp_path, 50)) is None
