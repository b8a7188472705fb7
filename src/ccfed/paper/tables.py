"""The paper's five tables, each read off the rows of its reference numbers."""

from dataclasses import replace

from ccfed.paper import published
from ccfed.paper.drawing.tables import draw_table
from ccfed.paper.plan import Entry, Plan
from ccfed.paper.studies import DATA_TITLES, DEVICE_FMNIST, MODEL_TITLES, SILO_CIFAR10, TITLES, method
from ccfed.simulation.settings import Settings

FIVE = (0, 1, 2, 3, 4)
THREE = (0, 1, 2)

METHOD_OF = {title: name for name, title in TITLES.items()} | {
    "FedAvg (dropout, best)": "dropout",
    "FedAvg (dropout, last)": "dropout",
}
SPLIT_OF = {
    "sorted": "mixed",
    "random": "shards",
    "highly skewed": "highly-skewed",
    "moderately skewed": "moderately-skewed",
}


def settings_of(row: published.Row) -> Settings:
    """What a row of a table was run with."""
    base = {"cifar10": SILO_CIFAR10, "fmnist": DEVICE_FMNIST}[row["dataset"]]
    placed = replace(
        base,
        iid=float(row["iid_fraction"]),
        participation=float(row["participation"]),
        split=SPLIT_OF[row["class_placement"]],
    )
    return method(placed, METHOD_OF[row["method"]], row["schedule"])


def entry_of(row: published.Row, labels: dict[str, str], seeds: tuple[int, ...]) -> Entry:
    """The entry of a row of a table."""
    measure = "best" if row["method"].endswith("best)") else "last"
    return Entry(
        labels=(*labels.items(), ("method", row["method"])),
        settings=settings_of(row),
        seeds=seeds,
        measure=measure,
        paper=published.of_table(row),
    )


def silo_cifar() -> Plan:
    """CIFAR-10, 8 clients: methods over data heterogeneity, under both schedules."""
    entries = [
        entry_of(row, {"schedule": row["schedule"], "iid": row["iid_fraction"]}, (0,))
        for row in published.tables("silo-cifar")
    ]
    return Plan(
        name="silo-cifar",
        title="CIFAR-10, CNN, 8 clients, beta = 4: test accuracy over the share of IID data",
        entries=tuple(entries),
        draw=draw_table,
        columns="iid",
        pages=("schedule",),
        notes=("FedAvg (full) and FedAvg (dropout) do not depend on the schedule: they are run once and shown twice.",),
    )


def device_fmnist(number: int) -> Plan:
    """Fashion-MNIST, 100 clients: methods over participation, for one of the three placements of classes."""
    name = f"device-fmnist{number}"
    rows = published.tables(name)
    entries = [entry_of(row, {"participation": row["participation"]}, FIVE) for row in rows]
    return Plan(
        name=name,
        title=f"Fashion-MNIST, MLP, 100 clients, classes {rows[0]['class_placement']}: accuracy over participation",
        entries=tuple(entries),
        draw=draw_table,
        columns="participation",
    )


def compare_combination() -> Plan:
    """Strategy 2, CC-FedAvg and their combination CC-FedAvg(c)."""
    entries = []
    for row in published.tables("compare-combination"):
        on_cifar = row["dataset"] == "cifar10"
        study = f"{DATA_TITLES[row['dataset']]}, {MODEL_TITLES[row['model']]}"
        setting = f"iid {row['iid_fraction']}" if on_cifar else f"participation {row['participation']}"
        entries.append(entry_of(row, {"study": study, "setting": setting}, THREE if on_cifar else FIVE))
    return Plan(
        name="compare-combination",
        title="Strategy 2, CC-FedAvg and CC-FedAvg(c) with tau = 100: test accuracy",
        entries=tuple(entries),
        draw=draw_table,
        columns="setting",
        pages=("study",),
        notes=(
            "The paper's deviations on CIFAR-10 (0.02 to 0.2 points) are too small to be those of different seeds.",
        ),
    )
