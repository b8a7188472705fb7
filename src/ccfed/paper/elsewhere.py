"""The missing runs of the paper on a Ray cluster: sent there in small groups, written down here as they come in."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ccfed import data
from ccfed.data import Dataset
from ccfed.paper.campaign import Deadline, Load, SomeFailed, run_missing
from ccfed.paper.machine import Machine
from ccfed.paper.plan import Cell
from ccfed.paper.store import Finished, Store
from ccfed.simulation.spread import connected, shared_out


def run_missing_elsewhere(
    cells: Sequence[Cell],
    store: Store,
    machine: Machine,
    address: str,
    *,
    load: Load = data.load,
    deadline: Deadline | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Runs those of `cells` that `store` lacks on the Ray cluster at `address`, as `machine` says.

    The data, which `load` gives by name, are sent along. When the deadline comes, or this is interrupted, the groups
    that have ended are in the store, and the next call runs the others. Runs that fail do not keep the others from
    being made: after them SomeFailed is raised.
    """
    missing = store.missing(tuple(cells))
    if not missing:
        return
    datasets = {name: load(name) for name in sorted({cell.settings.data for cell in missing})}
    failed: list[SomeFailed] = []
    with connected(address, gpus=machine.device != "cpu") as cluster:
        groups = shared_out(missing, cluster.slots)
        say(f"{len(missing)} runs on {address}, {cluster.slots} groups at the same time")
        done = 0
        with closing(cluster.spread(Work(machine, datasets), groups, say)) as coming:
            for number, (finished, trouble) in coming:
                for result in finished:
                    store.add(result)
                if trouble is not None:
                    say(f"failed: {trouble}")
                    failed.append(trouble)
                done += len(groups[number])
                say(f"{done} of {len(missing)} runs are finished")
                if deadline is not None and deadline.reached:
                    break
    if failed:
        raise SomeFailed("; ".join(dict.fromkeys(map(str, failed))), all(trouble.bad_input for trouble in failed))


@dataclass(frozen=True)
class Work:
    """What a worker does with a group of cells: runs them with a store of its own, and gives back what it holds, and
    why some are not in it, if that is so."""

    machine: Machine
    datasets: Mapping[str, Dataset]

    def __call__(self, cells: Sequence[Cell]) -> tuple[list[Finished], SomeFailed | None]:
        """Runs all of `cells`."""
        with tempfile.TemporaryDirectory(prefix="ccfed-") as place:
            store = Store(Path(place))
            try:
                run_missing(cells, store, self.machine, load=self.datasets.__getitem__, say=print)
            except SomeFailed as trouble:
                return list(store), trouble
            return list(store), None
