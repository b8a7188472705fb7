"""The server's side: a Flower strategy that plays CC-FedAvg, or any other method of ccfed, with real devices."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from logging import INFO, WARNING
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.supercore import log

from ccfed.algorithm import Estimator, Method, Outcome, Schedule, Server, View, methods, select, streams
from ccfed.algorithm.estimators import as_estimator
from ccfed.algorithm.history import KEEPS, Keep
from ccfed.algorithm.methods import Budgets
from ccfed.algorithm.schedules import SCHEDULES
from ccfed.flower.answers import Taken, read
from ccfed.flower.arrays import Refused
from ccfed.flower.course import Course, Plan
from ccfed.flower.exchange import Patience
from ccfed.flower.journal import Journal
from ccfed.flower.loop import EvaluateFn, Loop, alone_in
from ccfed.flower.metrics import Metrics, mean_metrics
from ccfed.flower.wire import KEY

STATISTICS = ("*running_mean", "*running_var")
"""How PyTorch calls the running statistics of its layers of batch normalisation."""


class CCFedAvg(FedAvg):
    """CC-FedAvg as a Flower strategy, in the place of `FedAvg`: each device trains only as often as it can afford.

    `p` are the budgets p_i, one a client, or any `ccfed.Method`, such as `methods.strategy_2(p)`. `keep` says where a
    client's last move is kept: "client" (Algorithm 1), "server" (2) or "mixed" (3, with those `on_server`). `schedule`,
    `estimator` and `server` are those of `methods.cc_fedavg` and `ccfed.server`. A device's owner may decide otherwise
    about its own budget and schedule: see `ccfed.flower.customize`, the mod that every client app needs.

    Clients are numbered 0 .. N - 1 by `ccfed-client` or `partition-id` in their node config. `fraction_train` of them
    take part in each round, `fraction_evaluate` are asked to evaluate; the run begins when `min_available_nodes` are
    there (default: all). `weighted_by_key` names the metric that weighs a client's move, as in FedAvg; None weighs all
    alike, as the paper does. `steps` is the number of local steps that a full training makes, for methods with partial
    work and for what is written down of the cost.

    A client that fails is estimated if the server keeps its past (`estimate_failed`), else left out of the round.
    `patience` says how long it is waited for. `accuracy_key` and `loss_key` name the metrics of the evaluation that go
    into the run's folder; an accuracy is a share, 0..1. `statistics` are patterns for the names of arrays that are
    running statistics of the data: these are averaged over the clients that trained, and never estimated.
    """

    def __init__(
        self,
        p: Budgets | Method,
        *,
        keep: Keep | None = None,
        on_server: Iterable[int] | None = None,
        schedule: str | Schedule | None = None,
        estimator: Estimator | Callable[[View], torch.Tensor | None] | None = None,
        server: Server | None = None,
        clients: int | None = None,
        seed: int = 0,
        steps: int = 1,
        fraction_train: float = 1.0,
        fraction_evaluate: float = 1.0,
        min_available_nodes: int | None = None,
        weighted_by_key: str | None = "num-examples",
        arrayrecord_key: str = "arrays",
        configrecord_key: str = "config",
        train_metrics_aggr_fn: Metrics | None = None,
        evaluate_metrics_aggr_fn: Metrics | None = None,
        estimate_failed: bool = True,
        patience: Patience | None = None,
        accuracy_key: str = "accuracy",
        loss_key: str = "loss",
        statistics: Iterable[str] = STATISTICS,
    ) -> None:
        super().__init__(
            fraction_train=fraction_train,
            fraction_evaluate=fraction_evaluate,
            weighted_by_key=weighted_by_key or "num-examples",
            arrayrecord_key=arrayrecord_key,
            configrecord_key=configrecord_key,
        )
        self.method = _method(p, keep, on_server, schedule, estimator, server)
        count = clients if self.method.p is None else len(self.method.p)
        if count is None or count < 1 or (clients is not None and clients != count):
            raise ValueError(f"clients is {clients}, but it must be {count or 'the number of clients, at least 1'}")
        if self.method.speaks_for == "everyone" and self.method.keep != "server":
            raise ValueError(
                f"method {self.method.name!r} needs the moves of all clients in every round: keep='server'"
            )
        if steps < 1:
            raise ValueError(f"steps is {steps}, but it must be at least 1")
        if not 0 < fraction_train <= 1:
            raise ValueError(f"fraction_train is {fraction_train}, but it must lie in (0, 1]")
        self.clients, self.seed, self.steps = count, seed, steps
        self.min_available_nodes = count if min_available_nodes is None else min_available_nodes
        self.weighted, self.estimate_failed = weighted_by_key is not None, estimate_failed
        self.patience = patience or Patience()
        self.accuracy_key, self.loss_key, self.statistics = accuracy_key, loss_key, tuple(statistics)
        self._train_metrics, self._evaluate_metrics = train_metrics_aggr_fn, evaluate_metrics_aggr_fn
        # Of the run, and of the round that was played last:
        self.course: Course | None = None
        self.journal = Journal(None, count)
        self.whose: dict[str, int] = {}  # the id of a message that was answered -> the client it went to
        self.taken: dict[int, Taken] = {}
        self.refused: dict[int, str] = {}
        self.failed: dict[int, str] = {}
        self.outcome: Outcome | None = None
        self._arrays: ArrayRecord | None = None

    def summary(self) -> None:
        """Logs what the strategy does."""
        method = self.method
        log(INFO, "\t├──> Method: %s, schedule %s, pasts kept: %s", method.name, method.schedule.name, method.keep)
        log(INFO, "\t├──> Clients: %d, of whom %.0f %% take part", self.clients, 100 * self.fraction_train)
        weights = f"by '{self.weighted_by_key}'" if self.weighted else "equal"
        log(INFO, "\t└──> Weights: %s; arrays '%s'", weights, self.arrayrecord_key)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages of a round, one for each client that must be asked, addressed to the clients' own numbers:
        `start` sends them to the nodes where the clients are."""
        course = self._course()
        if arrays is not self._arrays:
            course.take(arrays)
            self._arrays = arrays
        config["server-round"] = server_round
        messages = []
        for client, (ask, needs_model) in course.begin().items():
            content = RecordDict({self.configrecord_key: config, KEY: ask.record()})
            if needs_model:
                content[self.arrayrecord_key] = arrays
            messages.append(Message(content, client, MessageType.TRAIN))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Plays the round with the answers: the next global model, and the mean of the clients' metrics."""
        course = self._course()
        taken: dict[int, Taken] = {}
        for reply in replies:
            client = self.whose[reply.metadata.reply_to_message_id]
            try:
                taken[client] = read(reply, course.asked[client], course.layout, self._weight_key)
            except Refused as reason:
                self.refused[client] = str(reason)
                log(WARNING, "the answer of client %d is refused: %s", client, reason)
        self.taken = dict(sorted(taken.items()))
        self.outcome = course.finish(self.taken)
        self._arrays = course.arrays(self._arrays)
        contents = [answer.content for answer in self.taken.values() if answer.trained]
        return self._arrays, mean_metrics(contents, self.weighted_by_key, self.weighted, self._train_metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The messages that ask `fraction_evaluate` of the clients to evaluate the new global model, addressed as
        those of `configure_train`."""
        if self.fraction_evaluate == 0:
            return []
        config["server-round"] = server_round
        seed = int(streams.stream(self.seed, "evaluation"))
        clients = select(self.clients, self.fraction_evaluate, server_round, seed).tolist()
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return [Message(content, client, MessageType.EVALUATE) for client in clients]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The mean of the clients' metrics, in the order of the clients."""
        found = {self.whose[reply.metadata.reply_to_message_id]: reply.content for reply in replies}
        contents = [content for _, content in sorted(found.items(), key=lambda item: item[0])]
        return mean_metrics(contents, self.weighted_by_key, True, self._evaluate_metrics)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
        *,
        folder: str | Path | None = None,
        resume: bool = False,
    ) -> Result:
        """Runs the federation, as any Flower strategy does; `timeout` is how long a round waits for an answer.

        The server writes the run's `folder` (none by default), the same as `ccfed run`, and a checkpoint in it after
        each round. With `resume` it goes on with the run in `folder` from its last checkpoint: round, model, pasts,
        budgets and schedules are as they were.
        """
        plan = Plan(
            self.method,
            self.clients,
            num_rounds,
            seed=self.seed,
            steps=self.steps,
            participation=self.fraction_train,
            weighted=self.weighted,
            estimate_failed=self.estimate_failed,
            arrays=self.arrayrecord_key,
            statistics=self.statistics,
        )
        place = None if folder is None else Path(folder).expanduser()
        patience = replace(self.patience, answers=timeout)
        with alone_in(place):
            loop = Loop(self, grid, initial_arrays, plan, patience, place, resume)
            self.course, self.journal, self._arrays = loop.course, loop.journal, loop.arrays
            self.summary()
            return loop.run(train_config or ConfigRecord(), evaluate_config or ConfigRecord(), evaluate_fn)

    def _course(self) -> Course:
        if self.course is None:
            raise RuntimeError(
                "CCFedAvg plays its own rounds: call start(grid=..., initial_arrays=..., num_rounds=...)"
            )
        return self.course

    @property
    def _weight_key(self) -> str | None:
        return self.weighted_by_key if self.weighted else None


def _method(
    p: Budgets | Method,
    keep: Keep | None,
    on_server: Iterable[int] | None,
    schedule: str | Schedule | None,
    estimator: Estimator | Callable[[View], torch.Tensor | None] | None,
    server: Server | None,
) -> Method:
    """The method that the arguments of `CCFedAvg` describe."""
    if isinstance(p, Method):
        method = p
        if estimator is not None:
            method = method.but(estimator=as_estimator(estimator))
    else:
        method = methods.cc_fedavg(p, estimator=estimator)
    if isinstance(schedule, str):
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule is {schedule!r}, but it must be one of {', '.join(SCHEDULES)}")
        schedule = SCHEDULES[schedule]()
    if keep is not None and keep not in KEEPS:
        raise ValueError(f"keep is {keep!r}, but it must be one of {', '.join(KEEPS)}")
    choices = {
        "keep": keep,
        "on_server": None if on_server is None else tuple(on_server),
        "schedule": schedule,
        "server": server,
    }
    return method.but(**{name: choice for name, choice in choices.items() if choice is not None})
