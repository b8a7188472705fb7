"""What the paper's experiments have in common, study by study: data, model, sizes and learning rate."""

from dataclasses import replace

from ccfed.simulation.settings import Settings

QUARTERS = (1 / 8, 1 / 4, 1 / 2, 1.0)
"""The budgets p_i of the four quarters of the clients, by client index: the scarce ones come first."""


def quarters(clients: int) -> tuple[float, ...]:
    """p_i = 1/8, 1/4, 1/2, 1 for a quarter of the clients each, in the order of their index."""
    return tuple(QUARTERS[4 * i // clients] for i in range(clients))


def with_quarters(settings: Settings) -> Settings:
    """These settings with the budgets of beta = 4, the scarce clients first."""
    return replace(settings, budgets="explicit", p=quarters(settings.clients))


def with_groups(settings: Settings, r: float, W: float) -> Settings:
    """These settings with the first r N clients at p = 1/W, the others at 1."""
    return replace(settings, budgets="groups", r=r, W=W)


SILO_CIFAR10 = with_quarters(
    Settings(data="cifar10", clients=8, model="cnn", rounds=400, steps=300, batch_size=64, lr=0.01)
)
"""CIFAR-10, the small CNN, 8 clients that all take part."""

DEVICE_FMNIST = with_quarters(
    Settings(data="fmnist", clients=100, split="shards", model="mlp", rounds=400, steps=200, batch_size=32, lr=0.01)
)
"""Fashion-MNIST, the perceptron, 100 clients of which some take part."""

SILO_FMNIST = with_quarters(
    Settings(data="fmnist", clients=8, model="mlp", rounds=400, steps=400, batch_size=64, lr=0.01)
)
"""Fashion-MNIST, the perceptron, 8 clients that all take part."""

RESNET_CIFAR10 = with_quarters(
    Settings(data="cifar10", clients=8, model="resnet18", rounds=400, steps=400, batch_size=64, lr=0.01)
)
"""CIFAR-10, ResNet-18, 8 clients that all take part."""

RESNET_CIFAR100 = with_quarters(
    Settings(data="cifar100", clients=8, model="resnet18", rounds=400, steps=200, batch_size=64, lr=0.1)
)
"""CIFAR-100, ResNet-18, 8 clients that all take part."""

TITLES = {
    "fedavg": "FedAvg (full)",
    "dropout": "FedAvg (dropout)",
    "strategy-1": "Strategy 1",
    "strategy-2": "Strategy 2",
    "cc-fedavg": "CC-FedAvg",
    "cc-fedavg-c": "CC-FedAvg(c)",
    "fednova": "FedNova (normalised)",
    "fednova-plain": "FedNova (plain mean)",
    "fedopt": "FedOpt (all skip together)",
    "mifa": "MIFA",
}
"""The methods' names as the paper prints them."""

DATA_TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "fmnist": "Fashion-MNIST"}
MODEL_TITLES = {"cnn": "CNN", "mlp": "MLP", "resnet18": "ResNet-18"}


def method(settings: Settings, name: str, schedule: str = "ad-hoc", tau: int = 100) -> Settings:
    """These settings with the method `name`; what the method does not look at is put back to its default.

    So runs that are the same are equal settings: FedAvg (full) knows no budgets, and neither it nor dropout a
    schedule.
    """
    chosen = replace(settings, method=name, tau=tau if name == "cc-fedavg-c" else Settings.tau)
    if name == "fedavg":
        chosen = replace(chosen, budgets=Settings.budgets, p=(), r=Settings.r, W=Settings.W)
    follows = name in ("strategy-1", "strategy-2", "cc-fedavg", "cc-fedavg-c", "mifa")
    return replace(chosen, schedule=schedule if follows else None)
