"""Independent federations on a Ray cluster: sent there in small groups, their folders written here as they come in."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from ccfed.files import write_whole
from ccfed.simulation.checkpoint import STATE, Checkpoint
from ccfed.simulation.checkpoints import FOLDER, Checkpoints, locked
from ccfed.simulation.experiment import Experiment
from ccfed.simulation.folder import RunFolders
from ccfed.simulation.identity import Identities
from ccfed.simulation.loop import Observer
from ccfed.simulation.memory import STORED, space_for
from ccfed.simulation.results import Run, Runs
from ccfed.simulation.running import Running
from ccfed.simulation.settings import Settings
from ccfed.simulation.simulate import find_device, run
from ccfed.simulation.spread import connected, shared_out
from ccfed.simulation.tensorboard import TensorBoard

Finished = list[tuple[Run, dict[str, bytes]]]
"""The results of a group: each federation's Run, and the files of its folder."""


def run_elsewhere(
    experiments: Sequence[Experiment],
    folders: dict[tuple[str, int], Path],
    settings: Settings,
    address: str,
    *,
    resume: bool = False,
    tensorboard: bool = False,
    say: Callable[[str], None],
) -> Runs:
    """Simulates `experiments` on the Ray cluster at `address` with the device, engine and so on of `settings`.

    The data are sent along. Each federation's folder is written here once, when it is finished; with `resume` those
    that have finished are not run again. With `tensorboard` it holds an event file, too. `say` hears what is done.
    """
    with ExitStack() as entered:
        cluster = entered.enter_context(connected(address, gpus=settings.device != "cpu"))
        found: dict[int, Run] = {}
        identities = Identities()
        for i, e in enumerate(experiments):
            folder = folders[e.name, e.seed]
            entered.enter_context(locked(folder / FOLDER))
            if resume and (before := _finished(e, folder / FOLDER, settings, identities, say)):
                found[i] = before
        left = [i for i in range(len(experiments)) if i not in found]
        groups = shared_out(left, cluster.slots)
        say(f"{len(left)} of {len(experiments)} federations on {address}, {cluster.slots} at the same time")
        pieces = [[experiments[i] for i in group] for group in groups]
        coming = entered.enter_context(closing(cluster.spread(Work(settings, tensorboard), pieces, say)))
        for number, finished in coming:
            for i, (result, content) in zip(groups[number], finished, strict=True):
                _write(folders[result.name, result.seed], content)
                found[i] = result
                say(f"{len(found)}/{len(experiments)}: {experiments[i].label}: accuracy {result.accuracy_last:.1f} %")
    return Runs([found[i] for i in range(len(experiments))])


@dataclass(frozen=True)
class Work:
    """What a worker does with a group of experiments: simulates them side by side in a folder of its own, and gives
    back results and files."""

    settings: Settings
    tensorboard: bool = False

    def __call__(self, experiments: list[Experiment]) -> Finished:
        """Simulates and packs up."""
        s = self.settings
        with tempfile.TemporaryDirectory(prefix="ccfed-") as place:
            folders = {(e.name, e.seed): Path(place) / str(number) for number, e in enumerate(experiments)}
            observers: list[Observer] = [Checkpoints(folders, seconds=float("inf")), RunFolders(folders)]
            if self.tensorboard:
                observers.append(TensorBoard(folders))
            runs = run(
                experiments,
                device=s.device,
                engine=s.engine,
                precision=s.precision,
                observers=observers,
                space=space_for(experiments, s.history_memory, find_device(s.device), Path(place), print),
                store_dtype=STORED[s.history_dtype],
                say=print,
            )
            return [(result, _read(folders[result.name, result.seed])) for result in runs.all]


def _finished(
    e: Experiment, folder: Path, settings: Settings, identities: Identities, say: Callable[[str], None]
) -> Run | None:
    """The result of a federation that has finished before, None if it has not."""
    running = Running(e, e.make_network().flat(), 0, store_dtype=STORED[settings.history_dtype])
    Checkpoint(folder, identities.of(running)).restore(running, say)
    return Run.of(running) if running.finished else None


def _read(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _write(folder: Path, content: dict[str, bytes]) -> None:
    """The state comes last: where it is, all the rest is."""
    state = f"{FOLDER}/{STATE}"
    for name in sorted(content, key=lambda name: name == state):
        write_whole(folder / name, content[name])
