"""The figures over r (the share of scarce clients) and W (they train one round in W)."""

from dataclasses import replace

from ccfed.paper import published
from ccfed.paper.drawing.efficiency import draw_efficiency
from ccfed.paper.drawing.heat_maps import draw_heat_maps
from ccfed.paper.plan import Entry, Plan
from ccfed.paper.studies import DATA_TITLES, DEVICE_FMNIST, SILO_CIFAR10, method, with_groups
from ccfed.paper.tables import METHOD_OF
from ccfed.simulation.settings import Settings

BASES = {"cifar10": replace(SILO_CIFAR10, p=(), iid=0.1), "fmnist": replace(DEVICE_FMNIST, p=(), participation=0.2)}


def settings_of(row: published.Row) -> Settings:
    """What a row of the grid was run with."""
    base = with_groups(BASES[row["dataset"]], float(row["r"]), float(row["W"]))
    return method(base, METHOD_OF[row["method"]], row["schedule"])


def entry_of(row: published.Row, measure: str = "last") -> Entry:
    """The entry of a row of the grid."""
    labels = {"data": DATA_TITLES[row["dataset"]], "method": row["method"]}
    labels |= {"r": f"{float(row['r']):g}", "W": row["W"]}
    return Entry(tuple(labels.items()), settings_of(row), measure=measure, paper=published.of_grid(row, measure))


def r_w() -> Plan:
    """Heat maps over r and W of CC-FedAvg, Strategy 1 and Strategy 2."""
    rows = [row for row in published.grid() if row["method"] in ("CC-FedAvg", "Strategy 1", "Strategy 2")]
    return Plan(
        name="r-W",
        title="Test accuracy over r (share of scarce clients) and W (they train one round in W)",
        entries=tuple(entry_of(row) for row in rows),
        draw=draw_heat_maps,
        rows="r",
        columns="W",
        pages=("data", "method"),
    )


def efficiency() -> Plan:
    """CC-FedAvg in which all are scarce against FedAvg with as many trainings, and FedOpt."""
    entries = []
    # FedAvg comes first, and with it W = 1, which only it has.
    for row in sorted(published.grid(), key=lambda row: row["method"] != "FedAvg (full)"):
        if row["method"] == "FedAvg (full)":
            # FedAvg knows nothing of its own end, so that T/W rounds of it are the first of T.
            for W in (1, 2, 4, 8, 16):
                settings = settings_of(row)
                labels = {"data": DATA_TITLES[row["dataset"]], "method": "FedAvg, T/W rounds", "W": str(W)}
                paper = published.of_grid(row) if W == 1 else None
                measure = "last" if W == 1 else f"@1/{W}"
                entries.append(Entry(tuple(labels.items()), settings, measure=measure, paper=paper))
        elif row["method"].startswith("FedOpt") or (row["method"] == "CC-FedAvg" and float(row["r"]) == 1):
            entry = entry_of(row)
            entries.append(replace(entry, labels=tuple(pair for pair in entry.labels if pair[0] != "r")))
    return Plan(
        name="efficiency",
        title="All clients train one round in W: test accuracy",
        entries=tuple(entries),
        draw=draw_efficiency,
        columns="W",
        pages=("data",),
        notes=(
            "FedAvg with T/W rounds is the FedAvg run of T rounds, read after round T/W: it knows nothing of its end.",
        ),
    )
