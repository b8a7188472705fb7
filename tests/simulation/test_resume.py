"""A simulation that is stopped anywhere and taken up again comes to the same result, to the bit."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ccfed import Estimator, budgets, data, files, methods
from ccfed import server as servers
from ccfed.algorithm import Method, Space
from ccfed.algorithm.methods import METHODS
from ccfed.data import Federation
from ccfed.files import previous_of
from ccfed.models.mlp import mlp
from ccfed.records import RoundRecord
from ccfed.simulation import Experiment, Observer, Running, Simulation, checkpoint, segments
from ccfed.simulation.checkpoint import STATE, Checkpoint
from ccfed.simulation.checkpoints import FOLDER, Checkpoints
from ccfed.training import Together

ROUNDS = 8
CPU = torch.device("cpu")


def noting() -> Estimator:
    """Moves shrunk by the age, with a number noted for each client."""
    return Estimator(
        "noting",
        lambda view: view.last_move * view.state[:, :1] / view.age[:, None] + 0 * view.trained_from,
        note=lambda view: torch.stack([0.5 + 0 * view.state[:, 0], view.state[:, 1] + 1], 1),
        state_size=2,
    )


P = budgets.levels(12, 4)
CHOSEN: dict[str, Method] = {
    **{name: make(P) if name != "fedavg" else make() for name, make in METHODS.items()},
    "yogi, mixed": methods.fedopt(P, servers.yogi(), keep="mixed"),
    "momentum": methods.fedopt(P, servers.sgd(momentum=0.9)),
    "own": methods.cc_fedavg(P, "round-robin", noting(), keep="server"),
}


@pytest.fixture(scope="module")
def digits_of_12() -> Federation:
    return data.load("digits").split(data.mixed(iid=0.0), clients=12, seed=0)


def experiments(
    federation: Federation, chosen: dict[str, Method], seeds: Sequence[int] = (0, 1), **other
) -> list[Experiment]:
    settings = {"rounds": ROUNDS, "steps": 2, "batch_size": 8, "participation": 0.5, **other}
    return [Experiment(m, federation, mlp, seed, name=n, **settings) for n, m in chosen.items() for seed in seeds]


def simulation(
    made: Sequence[Experiment], observers: Sequence[Observer] = (), space: Space | None = None
) -> Simulation:
    return Simulation(made, lambda task, jobs: Together(task), CPU, observers, space)


def begun(e: Experiment) -> Running:
    return Running(e, e.make_network().flat(), 0)


def restored(running: Running, folder: Path) -> dict[str, object] | None:
    return Checkpoint.of(folder, running).restore(running)


class StopAfter:
    """An observer that ends the simulation after so many rounds, politely or not."""

    def __init__(self, rounds: int, trouble: BaseException | None = None) -> None:
        self.left, self.trouble = rounds, trouble

    def on_start(self, simulation: Simulation) -> None:
        simulation.stop_requested = self.left == 0

    def on_round(self, simulation: Simulation, played: list[tuple[Running, RoundRecord]]) -> None:
        self.left -= 1
        if self.left == 0:
            if self.trouble:
                raise self.trouble
            simulation.stop_requested = True

    def on_end(self, simulation: Simulation) -> None:
        pass


def folders(made: Sequence[Experiment], base: Path) -> dict[tuple[str, int], Path]:
    return {(e.name, e.seed): base / f"{e.name}-{e.seed}" for e in made}


def everything(running: Running) -> dict[str, object]:
    """All that a federation carries, so that two can be compared; seconds are not of it."""
    history = running.state.history
    owners = history.owners()
    return {
        "round": running.state.round,
        "model": running.state.model,
        **{f"server {name}": tensor for name, tensor in running.state.server.items()},
        "owners": owners,
        **({f"past {name}": tensor for name, tensor in history.past_of(owners).items()} if len(owners) else {}),
        **{f"origin {name}": tensor for name, tensor in history.origins.items()},
        "storage": running.storage_bytes(),
        "steps done": running.steps_done,
        "up": running.bytes_up,
        "down": running.bytes_down,
        "took part": [(ids.tolist(), did.tolist()) for ids, did in running.took_part],
        "records": [(r.round, r.accuracy, r.loss, r.trained, r.estimated, r.bytes_up) for r in running.records],
    }


def assert_same(one: Running, other: Running, also_pasts: bool = True) -> None:
    a, b = everything(one), everything(other)
    if not also_pasts:
        a, b = ({k: v for k, v in c.items() if not k.startswith(("past", "origin", "owners"))} for c in (a, b))
    assert a.keys() == b.keys()
    for name in a:
        equal = torch.equal(a[name], b[name]) if isinstance(a[name], torch.Tensor) else a[name] == b[name]
        assert equal, f"{one.experiment.label}: {name}"


@pytest.fixture
def tiny_files(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes a small federation use all that is there for large ones: many files, let go when mostly out of date."""

    def shrink() -> None:
        monkeypatch.setattr(segments, "SMALL_BYTES", 0)
        monkeypatch.setattr(segments, "PIECE_BYTES", 3 * 4 * 4000)
        monkeypatch.setattr(checkpoint, "LOG_BYTES", 200)
        monkeypatch.setattr(checkpoint, "COUNTED_APART", 7)

    return shrink


@pytest.mark.parametrize("tiny", [False, True])
def test_every_method_goes_on_to_the_same_result(
    digits_of_12: Federation, tmp_path: Path, tiny: bool, tiny_files: Callable[[], None]
) -> None:
    if tiny:
        tiny_files()
    made = experiments(digits_of_12, CHOSEN, seeds=[3])
    straight = simulation(made)
    straight.run()
    for calls in range(ROUNDS + 2):
        saves = Checkpoints(folders(made, tmp_path), resume=True, seconds=0)
        again = simulation(made, [saves, StopAfter(1 if calls < 5 else 2)])
        again.run()
        if all(r.finished for r in again.running):
            break
    assert calls == 6
    for one, other in zip(straight.running, again.running, strict=True):
        assert_same(one, other)


def test_pasts_come_back_to_the_bit_wherever_they_lie_and_however_they_are_stored(
    digits_of_12: Federation, tmp_path: Path, tiny_files: Callable[[], None]
) -> None:
    tiny_files()
    (e,) = experiments(digits_of_12, {"strategy-2": methods.strategy_2(P, keep="mixed")})[:1]
    spaces = [Space(), Space(0), Space(0, 0, tmp_path / "blocks")]
    network = e.make_network()
    for dtype in (None, torch.bfloat16):
        for number, space in enumerate(spaces):
            before = Running(e, network.flat(), 0, space, dtype)
            writer = Checkpoint.of(tmp_path / f"{dtype}-{number}", before)
            for _ in range(ROUNDS - 1):
                jobs = before.begin_round()
                noise = torch.arange(len(jobs) * len(before.state.model)).view(len(jobs), -1) / 1e6
                before.record(before.end_round(noise), 1.0, 2.0, 3.0)
                writer.save(before, {"round": before.state.round})
            after = Running(e, network.flat(), 0, Space(), dtype)
            assert Checkpoint.of(writer.folder, after).restore(after) == {"round": ROUNDS - 1}
            assert_same(before, after)
            assert before.records == after.records


def test_files_stay_few_and_small(
    digits_of_12: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_files: Callable[[], None]
) -> None:
    """Only what is new is written, and all files together never take much more than twice what is kept."""
    tiny_files()
    monkeypatch.setattr(checkpoint, "LOG_BYTES", 2**20)
    (e,) = experiments(digits_of_12, {"strategy-2": methods.strategy_2(P)}, rounds=200)[:1]
    running = begun(e)
    writer = Checkpoint.of(tmp_path, running)
    width = running.state.model.nbytes
    written = trained = 0
    for _ in range(100):
        before = {path.name for path in tmp_path.iterdir()}
        jobs = running.begin_round()
        running.record(running.end_round(torch.zeros(len(jobs), width // 4)), 1.0, 2.0, 3.0)
        writer.save(running)
        trained += len(jobs)
        written += sum(p.stat().st_size for p in tmp_path.iterdir() if p.name not in {*before, STATE})
        history = running.state.history
        kept = len(history.owners()) + len(history.origins)
        # What is kept, at most twice; the checkpoint before may have as much; the two states.
        parts = sum(p.stat().st_size for p in tmp_path.iterdir() if p.name.startswith(("pasts", "origins")))
        assert parts <= (4 * kept + 2) * (width + 1000)
    assert written < 2.5 * (trained + 100) * (width + 1000)


def test_rounds_after_the_checkpoint_are_played_again_and_nothing_is_doubled(
    digits_of_12: Federation, tmp_path: Path
) -> None:
    made = experiments(digits_of_12, {"cc-fedavg": CHOSEN["cc-fedavg"], "mifa": CHOSEN["mifa"]})
    straight = simulation(made)
    straight.run()
    every_round = Checkpoints(folders(made, tmp_path), seconds=0)
    with pytest.raises(RuntimeError, match="power"):
        simulation(made, [StopAfter(4, RuntimeError("power")), every_round]).run()  # three checkpoints, four rounds
    # One federation has lost its last checkpoint, and goes on from the one before, beside the others.
    state = folders(made, tmp_path)["mifa", 0] / FOLDER / STATE
    state.write_bytes(state.read_bytes()[:-1])
    said: list[str] = []
    again = simulation(made, [Checkpoints(folders(made, tmp_path), resume=True, say=said.append)])
    again.run()
    assert len(said) == 2
    assert "damaged" in said[0]
    assert "after round 2" in said[0]
    assert said[1] == "going on after 2 to 3 of 8 rounds"
    for one, other in zip(straight.running, again.running, strict=True):
        assert_same(one, other)


def test_finished_federations_are_not_run_again(digits_of_12: Federation, tmp_path: Path) -> None:
    made = experiments(digits_of_12, {"cc-fedavg": CHOSEN["cc-fedavg"], "strategy-2": CHOSEN["strategy-2"]})
    first = simulation(made[:2], [Checkpoints(folders(made, tmp_path))])
    first.run()
    said: list[str] = []
    both = simulation(made, [Checkpoints(folders(made, tmp_path), resume=True, say=said.append)])
    both.run()
    assert said == ["going on after 0 of 8 rounds; 2 of 4 federations have finished"]
    straight = simulation(made)
    straight.run()
    for one, other in zip(straight.running, both.running, strict=True):
        assert_same(one, other, also_pasts=False)
    assert [r.records for r in first.running] == [r.records for r in both.running[:2]]  # the seconds of then, too

    idle = simulation(made, [Checkpoints(folders(made, tmp_path), resume=True, say=said.append)])
    idle.run()
    assert said[1] == "nothing to do: 4 of 4 federations have finished"
    assert idle.engine_name == "together"  # that of then, as nothing is trained now


@pytest.mark.parametrize("damage", ["cut", "byte", "gone", "empty"])
@pytest.mark.parametrize("part", [STATE, "pasts"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    digits_of_12: Federation, tmp_path: Path, damage: str, part: str
) -> None:
    (e,) = experiments(digits_of_12, {"cc-fedavg": CHOSEN["cc-fedavg"]})[:1]
    running = begun(e)
    writer = Checkpoint.of(tmp_path, running)
    for _ in range(3):
        jobs = running.begin_round()
        running.record(running.end_round(torch.ones(len(jobs), len(running.state.model))), 1.0, 2.0, 3.0)
        writer.save(running)
    path = max(tmp_path.glob(f"{part.removesuffix('.safetensors')}*"), key=lambda p: (p.name == STATE, p.name))
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        half = len(content) // 2
        altered = content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]
        path.write_bytes({"cut": content[:half], "byte": altered, "empty": b""}[damage])
    said: list[str] = []
    back = begun(e)
    reader = Checkpoint.of(tmp_path, back)
    reader.restore(back, said.append)
    assert back.state.round == 2
    if not (damage == "gone" and part == STATE):  # that is how a crash between two renames looks, and no damage
        (sentence,) = said
        assert path.name in sentence

    # The good one is the newest now: the next checkpoint keeps it, and so another damage finds it.
    jobs = back.begin_round()
    back.record(back.end_round(torch.ones(len(jobs), len(back.state.model))), 1.0, 2.0, 3.0)
    reader.save(back)
    (tmp_path / STATE).write_bytes(b"")
    once_more = begun(e)
    Checkpoint.of(tmp_path, once_more).restore(once_more)
    assert once_more.state.round == 2

    for both in (tmp_path / STATE, previous_of(tmp_path / STATE)):
        both.write_bytes(b"")
    with pytest.raises(ValueError, match=r"--resume: .*state.safetensors is damaged.*choose another --out"):
        restored(begun(e), tmp_path)


def test_a_checkpoint_that_finds_no_room_leaves_nothing_in_the_way(
    digits_of_12: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (e,) = experiments(digits_of_12, {"cc-fedavg": CHOSEN["cc-fedavg"]})[:1]
    running = begun(e)
    writer = Checkpoint.of(tmp_path, running)

    def play() -> None:
        jobs = running.begin_round()
        running.record(running.end_round(torch.ones(len(jobs), len(running.state.model))), 1.0, 2.0, 3.0)

    for _ in range(2):
        play()
        writer.save(running)
    good = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    play()
    save = files.save

    def only_parts(path: Path, *args: Any, **more: Any) -> str:
        if path.name == STATE:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return save(path, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(files, "save", only_parts)
        with pytest.raises(OSError, match="No space left"):
            writer.save(running)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == good
    writer.save(running)
    back = begun(e)
    Checkpoint.of(tmp_path, back).restore(back)
    assert_same(running, back)


def test_another_run_or_format_is_refused_in_one_sentence(
    digits_of_12: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def first(**other) -> Running:
        (e, *_) = experiments(digits_of_12, {"cc-fedavg": CHOSEN["cc-fedavg"]}, **other)
        return begun(e)

    running = first()
    Checkpoint.of(tmp_path / "checkpoint", running).save(running)
    with pytest.raises(ValueError, match=r"another run \(its lr was 0.05 and is 0.1\)"):
        restored(first(lr=0.1), tmp_path / "checkpoint")
    e = first().experiment
    other_p = Experiment(methods.cc_fedavg(P.flip(0)), e.federation, mlp, 0, ROUNDS, 2, 8, participation=0.5)
    with pytest.raises(ValueError, match="its budgets is not what it was"):
        restored(begun(other_p), tmp_path / "checkpoint")
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    with pytest.raises(ValueError, match="format 1, but this version of ccfed reads format 2"):
        restored(first(), tmp_path / "checkpoint")


def test_two_processes_do_not_write_into_one_folder(digits_of_12: Federation, tmp_path: Path) -> None:
    made = experiments(digits_of_12, {"cc-fedavg": CHOSEN["cc-fedavg"]})[:1]
    holder, held = Checkpoints(folders(made, tmp_path)), simulation(made)
    holder.on_start(held)
    with pytest.raises(ValueError, match="in use: another process"):
        Checkpoints(folders(made, tmp_path)).on_start(simulation(made))
    holder.on_end(held)
    Checkpoints(folders(made, tmp_path)).on_start(simulation(made))


def test_a_trouble_in_the_middle_of_a_round_leaves_the_last_good_state(
    digits_of_12: Federation, tmp_path: Path
) -> None:
    made = experiments(digits_of_12, {"cc-fedavg": CHOSEN["cc-fedavg"]})[:1]
    broken = simulation(made, [Checkpoints(folders(made, tmp_path), seconds=0), StopAfter(3)])
    broken.run()
    half = simulation(made, [Checkpoints(folders(made, tmp_path), resume=True, seconds=0)])

    def fails(*_: object) -> RoundRecord:
        raise KeyboardInterrupt

    half.running[0].record = fails  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        half.run()
    again = simulation(made, [Checkpoints(folders(made, tmp_path), resume=True)])
    again.run()
    straight = simulation(made)
    straight.run()
    assert_same(straight.running[0], again.running[0])
