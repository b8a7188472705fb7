"""Tables of pasts: what is put comes back, wherever it lies, and memory follows those who have one."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ccfed.algorithm import Space, estimators, methods, play, rows, start
from ccfed.algorithm import round as round_module
from ccfed.algorithm.history import History, kept_on_server
from ccfed.algorithm.rows import Rows

CPU = torch.device("cpu")
WIDTH = 5

puts = st.lists(st.sets(st.integers(0, 29), min_size=1), min_size=1, max_size=6)


def spaces(folder: Path) -> dict[str, Space]:
    each = 4 * WIDTH * 4  # one block of four rows
    return {
        "device": Space(),
        "host": Space(device_bytes=0),
        "file": Space(device_bytes=0, host_bytes=0, folder=folder / "file"),
        "all three": Space(device_bytes=each, host_bytes=each, folder=folder / "all"),
    }


@pytest.mark.parametrize("place", ["device", "host", "file", "all three"])
def test_a_table_gives_back_what_was_put_last(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK_BYTES", 4 * WIDTH * 4)

    @given(puts)
    def check(batches: list[set[int]]) -> None:
        table, truth = Rows(30, WIDTH, torch.float32, CPU, spaces(tmp_path)[place]), {}
        for i, clients in enumerate(batches):
            chosen = torch.tensor(sorted(clients)).flip(0)
            values = torch.arange(len(chosen) * WIDTH, dtype=torch.float32).view(-1, WIDTH) + 1000 * i
            table.put(chosen, values)
            truth |= dict(zip(chosen.tolist(), values, strict=True))
        asked = torch.arange(30).flip(0)
        expected = torch.stack([truth.get(int(client), torch.zeros(WIDTH)) for client in asked])
        assert torch.equal(table.get(asked), expected)
        assert table.filled == len(truth)

    check()


def test_blocks_move_on_when_a_place_is_full_and_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK_BYTES", 4 * WIDTH * 4)
    space = spaces(tmp_path)["all three"]
    table = Rows(30, WIDTH, torch.float32, CPU, space)
    table.put(torch.arange(30), torch.ones(30, WIDTH))
    assert space.used == {"device": 80, "host": 80, "file": 6 * 80}
    assert os.listdir(tmp_path / "all") == []
    assert bool((table.get(torch.arange(30)) == 1).all())


@pytest.mark.parametrize("keep", ["client", "server", "mixed"])
@pytest.mark.parametrize("stored_as", [torch.float32, torch.bfloat16])
def test_a_history_put_back_from_pieces_is_the_same(keep: str, stored_as: torch.dtype) -> None:
    on_server, like = kept_on_server(keep, 12), torch.zeros(WIDTH)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    past, fresh = (History(on_server, like, state_size=2, keeps=2, store_dtype=stored_as) for _ in range(2))
    for t in range(6):
        clients = torch.randperm(9, generator=generator)[:4].sort().values
        moves, states = torch.randn(4, WIDTH, generator=generator), torch.randn(4, 2, generator=generator)
        past.remember(t, torch.full((WIDTH,), float(t)), clients, moves, states)
    for clients in past.owners().split(2):
        fresh.put_back(past.past_of(clients))
    fresh.put_back_origins(past.origins)
    everyone = torch.arange(12)
    for read in ("last_moves", "trained_from", "last_rounds", "states"):
        assert torch.equal(getattr(past, read)(everyone), getattr(fresh, read)(everyone)), read
    assert past.storage_bytes() == fresh.storage_bytes()
    for history in (past, fresh):  # and both go on alike
        history.remember(6, like, torch.arange(12), torch.ones(12, WIDTH), torch.ones(12, 2))
    assert list(past.origins) == list(fresh.origins) == [6]


def test_old_global_models_are_kept_only_for_estimators_that_look_at_them() -> None:
    kept = {}
    for method in (methods.cc_fedavg([0.5] * 6), methods.strategy_2([0.5] * 6)):
        state = start(method, torch.zeros(WIDTH), 6)
        for _ in range(8):
            playing = play(state, method, torch.arange(6), steps=1, rounds=8)
            work = next(playing)
            with pytest.raises(StopIteration):
                playing.send(torch.ones(len(work.clients), WIDTH))
        kept[method.name] = len(state.history.origins)
    assert kept["cc-fedavg"] == 0
    assert 1 <= kept["strategy-2"] <= 6


def test_a_past_without_the_model_says_so() -> None:
    promise = estimators.Estimator("forgetful", lambda view: view.trained_from, uses_trained_from=False)
    method = methods.cc_fedavg([0.5] * 6, estimator=promise)
    state = start(method, torch.zeros(WIDTH), 6)
    with pytest.raises(ValueError, match="trained_from"):  # noqa: PT012 (some round has a skipper)
        for _ in range(8):
            playing = play(state, method, torch.arange(6), steps=1, rounds=8)
            work = next(playing)
            try:
                playing.send(torch.ones(len(work.clients), WIDTH))
            except StopIteration:
                continue


@pytest.mark.parametrize("weighted", [False, True])
def test_a_mean_over_everyone_in_pieces_is_the_mean(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.arange(1, 41, dtype=torch.float64) if weighted else None
    models = {}
    for at_once in (2**30, 3 * WIDTH * 8):
        monkeypatch.setattr(round_module, "AT_ONCE_BYTES", at_once)
        generator = torch.Generator().manual_seed(1)
        method = methods.mifa([0.3] * 40)
        state = start(method, torch.zeros(WIDTH, dtype=torch.float64), 40)
        for t in range(12):
            selected = torch.randperm(40, generator=generator)[:10].sort().values
            playing = play(state, method, selected, steps=1, rounds=12, weights=weights)
            work = next(playing)
            with pytest.raises(StopIteration) as stop:
                playing.send(torch.sin(work.clients[:, None] + t + torch.arange(WIDTH, dtype=torch.float64)))
            models.setdefault(at_once, []).append((state.model, stop.value.value.estimated))
    for (whole, estimated), (pieces, also) in zip(*models.values(), strict=True):
        torch.testing.assert_close(whole, pieces, rtol=1e-12, atol=1e-14)
        assert torch.equal(estimated, also)
