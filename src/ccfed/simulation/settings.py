"""One typed object behind the command line, the TOML file and the folder of a run: every option with its default."""

import difflib
import json
import math
import re
import tomllib
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ccfed.algorithm import budgets
from ccfed.algorithm.history import KEEPS
from ccfed.algorithm.methods import METHODS, Method
from ccfed.algorithm.schedules import SCHEDULES
from ccfed.algorithm.server import SERVERS

BUDGETS = ("levels", "groups", "explicit", "energy")
DEVICES = ("auto", "cpu", "cuda")
ENGINES = ("auto", "one-by-one", "together", "streams")
MOST = 10**9
"""The largest count that an option takes, far beyond all that is of use."""
UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

SERVES = {
    "samples": ("data", {"synthetic"}),
    "iid": ("split", {"mixed"}),
    "shards_per_client": ("split", {"shards"}),
    "alpha": ("split", {"dirichlet"}),
    "smallest": ("split", {"dirichlet"}),
    "beta": ("budgets", {"levels"}),
    "r": ("budgets", {"groups"}),
    "W": ("budgets", {"groups"}),
    "p": ("budgets", {"explicit"}),
    "trainings": ("budgets", {"energy"}),
    "joules": ("budgets", {"energy"}),
    "joules_per_training": ("budgets", {"energy"}),
    "schedule": ("method", {"strategy-1", "strategy-2", "cc-fedavg", "cc-fedavg-c", "fedopt", "mifa"}),
    "tau": ("method", {"cc-fedavg-c"}),
    "server_optimizer": ("method", {"fedopt"}),
    "server_lr": ("method", {"fedopt"}),
    "server_momentum": ("method", {"fedopt"}),
}
"""The settings that only some choice of another one looks at."""


@dataclass(frozen=True)
class Settings:
    """One federation: its data, its model, its method and how long it runs."""

    data: str = "digits"
    """Data set: digits (shipped with ccfed), synthetic (made up), fmnist, cifar10, cifar100, or a path to an .npz
    file."""
    data_dir: str | None = None
    """Folder with the data set's original files (default: $CCFED_DATA, then the usual places)."""
    samples: int | None = None
    """With --data synthetic: the number of training samples (default: two for each client, at least 10000)."""
    clients: int = 8
    """Number of clients N."""
    split: str = "mixed"
    """Who holds what: mixed, shards, highly-skewed, moderately-skewed, dirichlet or iid."""
    iid: float = 0.0
    """With --split mixed: the share gamma of the data that is dealt out evenly; the rest is sorted by label."""
    shards_per_client: int = 2
    """With --split shards: label-sorted shards for each client."""
    alpha: float = 0.5
    """With --split dirichlet: concentration; small values mean few classes a client."""
    smallest: int = 10
    """With --split dirichlet: the fewest samples that a client holds."""
    model: str = "mlp"
    """Model: mlp, cnn, resnet18, or module:function that returns an nn.Module."""
    method: str = "cc-fedavg"
    """fedavg, dropout, strategy-1, strategy-2, cc-fedavg, cc-fedavg-c, fednova, fednova-plain, fedopt or mifa."""
    budgets: str = "levels"
    """How the p_i are made: levels (--beta), groups (--r, --W), explicit (--p) or energy (--trainings or --joules)."""
    beta: float = 4.0
    """With --budgets levels: p_i = (1/2)^floor(beta * i / N)."""
    r: float = 0.5
    """With --budgets groups: the share of clients that train one round in W."""
    W: float = 4.0
    """With --budgets groups: those clients train one round in W, the others always."""
    p: tuple[float, ...] = ()
    """With --budgets explicit: p_i of each client, in (0, 1], or one number for all."""
    trainings: tuple[float, ...] = ()
    """With --budgets energy: how many rounds of training each device can afford (or one number for all)."""
    joules: tuple[float, ...] = ()
    """With --budgets energy: the energy that each device may spend (or one number for all)."""
    joules_per_training: tuple[float, ...] = ()
    """With --budgets energy and --joules: what one round of training costs each device (or one number for all)."""
    schedule: str | None = None
    """Who trains when: always, round-robin, ad-hoc, quota, synchronised or live; fedavg, fednova and dropout keep
    their own (default: as the method does, mostly ad-hoc; with --budgets energy round-robin)."""
    keep: str | None = None
    """Where pasts are kept: client (Algorithm 1), server (2) or mixed (3) (default: client; mifa: server)."""
    participation: float = 1.0
    """Share of the clients that the server selects in each round."""
    weights: Literal["equal", "samples"] = "equal"
    """Weights in the server's mean: equal, as in the paper, or by each client's number of samples."""
    rounds: int = 100
    """Rounds T."""
    steps: int = 20
    """Local steps K of a full round of training."""
    batch_size: int = 32
    """Samples in a batch."""
    lr: float = 0.05
    """Learning rate of the clients' SGD."""
    tau: int = 100
    """With --method cc-fedavg-c: the round from which Strategy 2 takes over."""
    server_optimizer: str = "sgd"
    """With --method fedopt: sgd, adam or yogi."""
    server_lr: float | None = None
    """With --method fedopt: the server's learning rate (default: 1 for sgd, 0.01 for adam and yogi)."""
    server_momentum: float = 0.0
    """With --method fedopt and sgd: the server's momentum."""
    seed: int = 0
    """Seed of every random draw."""
    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:N, the N-th GPU."""
    engine: str = "auto"
    """How clients are trained: one-by-one (the reference), together (all at once), streams (large models on a GPU), or
    auto (measures and says)."""
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    """How exactly a GPU multiplies matrices: tf32 and bfloat16 are faster, with slightly different results."""
    history_memory: str = "auto"
    """Memory for the clients' pasts before they move on: device, host, or sizes such as 8GB,16GB (device, host; the
    rest goes to a memory-mapped file)."""
    history_dtype: Literal["float32", "bfloat16"] = "float32"
    """How pasts are stored: bfloat16 halves their memory, at some cost in accuracy."""

    def check(self) -> "Settings":
        """Raises ValueError with one sentence about the first option that cannot be; returns itself."""
        known("--method", self.method, METHODS)
        known("--budgets", self.budgets, BUDGETS)
        known_device(self.device)
        known("--engine", self.engine, ENGINES)
        known("--server-optimizer", self.server_optimizer, SERVERS)
        if self.schedule is not None:
            known("--schedule", self.schedule, SCHEDULES)
        if self.keep is not None:
            known("--keep", self.keep, KEEPS)
        for name in ("clients", "rounds", "steps", "batch_size", "shards_per_client", "smallest", "samples"):
            value = getattr(self, name)
            if value is None:
                continue
            if value < 1:
                raise ValueError(f"{option(name)} is {value}, but it must be at least 1")
            if value > MOST:
                raise ValueError(f"{option(name)} is {value}, but it must be at most {MOST}")
        for name in ("lr", "alpha"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{option(name)} is {value}, but it must be a finite number above 0")
        if not 0 < self.participation <= 1:
            raise ValueError(f"--participation is {self.participation}, but it must lie in (0, 1]")
        if not 0 <= self.iid <= 1:
            raise ValueError(f"--iid is {self.iid}, but it must lie in [0, 1]")
        sizes_of(self.history_memory)
        if self.tau < 0:
            raise ValueError(f"--tau is {self.tau}, but it must be at least 0")
        return self

    def unused(self, methods: Collection[str] = ()) -> list[str]:
        """A sentence about each option that was given a value and that nothing looks at, as `--alpha` without `--split
        dirichlet`; `methods` are those that run, if not only `method`."""
        chosen = {name: {getattr(self, name)} for name, _ in SERVES.values()} | {"method": {*methods} or {self.method}}
        found = []
        for name, (choice, served) in SERVES.items():
            if getattr(self, name) != getattr(Settings, name) and not chosen[choice] & served:
                found.append(f"{option(name)} is not used: it is for {option(choice)} {' or '.join(sorted(served))}")
        return found

    def samples_to_make(self) -> int:
        """The number of training samples of made-up data."""
        return max(10_000, 2 * self.clients) if self.samples is None else self.samples

    def make_method(self, name: str | None = None) -> Method:
        """The method that the settings describe (or the one called `name`, with the other settings as they are)."""
        name = name or self.method
        known("--method", name, METHODS)
        p, server = self.make_budgets(), self._server()  # bad ones are told, whether the method asks for them or not
        choices: dict[str, Any] = {}
        if name == "cc-fedavg-c":
            choices["tau"] = self.tau
        if name == "fedopt":
            choices["server"] = server
        method = METHODS[name]() if name == "fedavg" else METHODS[name](p, **choices)
        if self.keep is not None:
            method = method.but(keep=self.keep)
        # An energy plan is kept device by device, which draws do on average only.
        planned = "round-robin" if self.budgets == "energy" and method.schedule.name == "ad-hoc" else None
        schedule = self.schedule or planned
        if schedule is not None and method.schedule.name in ("ad-hoc", "synchronised"):
            # The other methods are defined by their schedule: FedAvg trains always, dropout by quota.
            method = method.but(schedule=SCHEDULES[schedule]())
        return method

    def make_budgets(self) -> Any:
        """The p_i as float64 [clients]."""
        if self.budgets == "levels":
            return budgets.levels(self.clients, self.beta)
        if self.budgets == "groups":
            return budgets.groups(self.clients, self.r, self.W)
        if self.budgets == "explicit":
            if not self.p:
                raise ValueError("--budgets is 'explicit', but --p is missing: give one p per client, or one for all")
            return budgets.explicit(self.p, self.clients)
        given = {"trainings": self.trainings, "joules": self.joules}
        for name, values in {**given, "joules_per_training": self.joules_per_training}.items():
            if len(values) not in (0, 1, self.clients):
                raise ValueError(f"{option(name)} has {len(values)} values, but it must have 1 or {self.clients}")
        if bool(self.trainings) == bool(self.joules):
            raise ValueError("--budgets is 'energy', which needs either --trainings or --joules (not both)")
        plan = budgets.energy_plan(
            self.rounds, self.trainings or None, self.joules or None, self.joules_per_training or None
        )
        return budgets.explicit(plan, self.clients)

    def _server(self) -> Any:
        rate = {} if self.server_lr is None else {"lr": self.server_lr}
        if self.server_optimizer == "sgd":
            return SERVERS["sgd"](**rate, momentum=self.server_momentum)
        if self.server_momentum:
            raise ValueError(
                f"--server-momentum is {self.server_momentum:g}, but --server-optimizer {self.server_optimizer} takes "
                "none: only sgd does"
            )
        return SERVERS[self.server_optimizer](**rate)

    def to_toml(self) -> str:
        """The settings as TOML, one line each; those that are None are left out."""
        lines = []
        for name, value in asdict(self).items():
            if value is not None:
                lines.append(f"{name} = {_toml(value)}")
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: Path, besides: Collection[str] = ()) -> "Settings":
        """Reads what `to_toml` wrote, or a file that names only some of the settings; what `besides` names may also
        stand there."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"--config is {str(path)!r}, which cannot be read: {error}") from error
        kinds = get_type_hints(cls)
        read = {}
        for written, value in values.items():
            name = written.replace("-", "_")
            if name in besides:
                continue
            if name not in kinds:
                near = difflib.get_close_matches(name, kinds, 1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise ValueError(f"--config has {written!r}, which is no setting{hint}")
            read[name] = _as(kinds[name], value, written)
        return cls(**read)


def option(name: str) -> str:
    """The command line's name of a setting: `batch_size` is `--batch-size`."""
    return "--" + name.replace("_", "-")


def known(name: str, value: str, allowed: Any) -> None:
    """Raises ValueError, with the nearest name, unless `value` is among the names `allowed`."""
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, 1)
        hint = f"did you mean {near[0]!r}? It" if near else "it"
        raise ValueError(f"{name} is {value!r}; {hint} must be one of {', '.join(allowed)}")


def known_device(device: str) -> None:
    """Raises ValueError, with the nearest name, unless `device` names one; a number may stand behind it (cuda:1)."""
    known("--device", device.partition(":")[0], DEVICES)


def sizes_of(text: str) -> tuple[float, float] | None:
    """The bytes that pasts may take (on the device, in host memory) by --history-memory; None for auto."""
    named = {"auto": None, "device": (float("inf"), 0.0), "host": (0.0, float("inf"))}
    if text in named:
        return named[text]
    found = [re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)", part.strip(), re.IGNORECASE) for part in text.split(",")]
    if len(found) != 2 or None in found:
        raise ValueError(f"--history-memory is {text!r}, but it must be auto, device, host, or two sizes as 8GB,16GB")
    first, second = (float(each[1]) * UNITS[each[2].upper()] for each in found if each)
    return first, second


def _as(kind: Any, value: Any, name: str) -> Any:
    """A value from a TOML file as the setting's type; raises ValueError if it is of another."""
    choices = get_args(kind)
    if get_origin(kind) is Literal:
        known(f"{name} in --config", _as(str, value, name), choices)
        return value
    if get_origin(kind) is tuple:
        values = value if isinstance(value, list) else [value]
        return tuple(_as(choices[0], each, name) for each in values)
    simple = next(each for each in (*choices, kind) if each is not type(None))
    if simple is float and type(value) is int:
        return float(value)
    if type(value) is not simple:
        raise ValueError(f"{name} in --config is {value!r}, but it must be of type {simple.__name__}")
    return value


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's too; the one character that only TOML wants escaped is DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
