"""The figures with curves: convergence, FedNova over K and T."""

from dataclasses import replace

from ccfed.paper.drawing.curves import draw_convergence, draw_nova
from ccfed.paper.plan import Entry, Plan
from ccfed.paper.studies import (
    DATA_TITLES,
    MODEL_TITLES,
    RESNET_CIFAR10,
    RESNET_CIFAR100,
    SILO_CIFAR10,
    SILO_FMNIST,
    TITLES,
    method,
)
from ccfed.simulation.settings import Settings

FOUR = ("fedavg", "cc-fedavg", "strategy-2", "strategy-1")
RIVALS = ("fedavg", "cc-fedavg", "fednova", "fednova-plain")

STEPS = (10, 25, 50, 100, 200, 300)
ROUNDS = (100, 200, 400, 1000, 2000)


def title_of(settings: Settings) -> str:
    """Such as 'CIFAR-10, ResNet-18'."""
    return f"{DATA_TITLES[settings.data]}, {MODEL_TITLES[settings.model]}"


def convergence() -> Plan:
    """Accuracy round by round of four methods, in three studies of 8 clients."""
    studies = (RESNET_CIFAR10, SILO_FMNIST, replace(SILO_FMNIST, iid=0.1), replace(RESNET_CIFAR100, iid=0.1))
    entries = [
        Entry((("study", f"{title_of(study)}, IID {study.iid:g}"), ("method", TITLES[name])), method(study, name))
        for study in studies
        for name in FOUR
    ]
    return Plan(
        name="convergence",
        title="Test accuracy round by round, 8 clients, beta = 4",
        entries=tuple(entries),
        draw=draw_convergence,
        columns="study",
        notes=(
            "The share of IID data of each panel is not said in the paper; it is that of the authors' public logs, in"
            " which FMNIST is there with both.",
            "The paper gives curves without numbers here, so there is nothing to compare with but their order.",
        ),
    )


def nova() -> Plan:
    """FedNova in both forms, CC-FedAvg and FedAvg over the number of local steps K, and over T at K = 10."""
    entries = []
    for base in (SILO_CIFAR10, replace(RESNET_CIFAR10, steps=SILO_CIFAR10.steps)):
        for steps in STEPS:
            for name in RIVALS:
                settings = replace(method(replace(base, iid=0.1), name), steps=steps)
                labels = {"study": f"{title_of(base)}, over K", "setting": f"K = {steps}", "method": TITLES[name]}
                entries.append(Entry(tuple(labels.items()), settings))
    longest = ROUNDS[-1]
    for rounds in ROUNDS:
        for name in RIVALS:
            # None of the four knows its own end, so that a run of fewer rounds is the beginning of a longer one.
            settings = replace(method(replace(SILO_CIFAR10, iid=0.1), name), steps=10, rounds=longest)
            labels = {
                "study": f"{title_of(SILO_CIFAR10)}, over T",
                "setting": f"T = {rounds}",
                "method": TITLES[name],
            }
            entries.append(Entry(tuple(labels.items()), settings, measure=f"@{rounds}"))
    return Plan(
        name="nova",
        title="FedNova, CC-FedAvg and FedAvg over the number of local steps K and of rounds T, 8 clients, IID 0.1",
        entries=tuple(entries),
        draw=draw_nova,
        columns="setting",
        pages=("study",),
        notes=(
            "FedNova (plain mean) is partial work with a plain mean of the models, as the paper's authors ran it;"
            " FedNova (normalised) divides each move by its number of steps, as its own paper says.",
            "The values of K and T, and the share of IID data, are ours: the paper shows curves without numbers.",
        ),
    )
