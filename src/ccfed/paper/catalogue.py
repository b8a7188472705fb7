"""All tables and figures by name, in the order in which they are best run, and names for several at once."""

import difflib
from collections.abc import Callable, Sequence
from functools import partial

from ccfed.paper.cost import cost
from ccfed.paper.distance import distance
from ccfed.paper.figures import convergence, nova
from ccfed.paper.grid import efficiency, r_w
from ccfed.paper.participation import participation
from ccfed.paper.plan import Plan
from ccfed.paper.tables import compare_combination, device_fmnist, silo_cifar
from ccfed.paper.theory import theory

PLANS: dict[str, Callable[[], Plan]] = {
    "silo-cifar": silo_cifar,
    "device-fmnist1": partial(device_fmnist, 1),
    "device-fmnist2": partial(device_fmnist, 2),
    "device-fmnist3": partial(device_fmnist, 3),
    "compare-combination": compare_combination,
    "r-W": r_w,
    "efficiency": efficiency,
    "distance": distance,
    "participation": participation,
    "theory": theory,
    "cost": cost,
    "nova": nova,
    "convergence": convergence,
}
"""Every table and figure, by name."""

GROUPS: dict[str, tuple[str, ...]] = {
    "tables": tuple(PLANS)[:5],
    "all": tuple(PLANS),
    "all-but-resnet": tuple(PLANS),
}
"""Names for several; `all-but-resnet` leaves out the runs of ResNet-18, not the figures that show others too."""

LARGE_MODEL = "resnet18"


def chosen(names: Sequence[str]) -> tuple[Plan, ...]:
    """The plans of these names, each once, in the order of PLANS; ValueError names what is unknown."""
    wanted: set[str] = set()
    for name in names:
        if name not in PLANS and name not in GROUPS:
            known = (*PLANS, *GROUPS)
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}? It" if near else "it"
            raise ValueError(f"NAME is {name!r}; {hint} must be one of {', '.join(known)}")
        wanted |= set(GROUPS.get(name, (name,)))
    return tuple(make() for name, make in PLANS.items() if name in wanted)


def without_large_models(names: Sequence[str]) -> bool:
    """Whether these names leave the runs of ResNet-18 out: one that is asked for by another name is run."""
    others = [name for name in names if name != "all-but-resnet"]
    return "all-but-resnet" in names and not any(name in ("all", "convergence", "nova") for name in others)
