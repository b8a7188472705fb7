"""The server's rounds: devices are waited for, asked and heard, and every round ends with a checkpoint."""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from logging import INFO, WARNING
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from flwr.supercore import log

from ccfed.flower import checkpoint
from ccfed.flower.arrays import Layout
from ccfed.flower.course import Course, Plan
from ccfed.flower.devices import Devices
from ccfed.flower.exchange import Exchanged, Patience, exchange
from ccfed.flower.journal import DeviceRow, Journal
from ccfed.flower.wire import Ask, content_bytes

if TYPE_CHECKING:
    from ccfed.flower.strategy import CCFedAvg

EvaluateFn = Callable[[int, ArrayRecord], MetricRecord | None]
CONNECT_EVERY = 0.5
LOCK, LOCK_SECONDS = ".lock", 60.0
NO_PAST = "the server knows of no training before"


@contextmanager
def alone_in(folder: Path | None) -> Iterator[None]:
    """While the block runs, no other process writes the run in `folder`; one that is about to end is waited for."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout:
        raise RuntimeError(f"the run in {folder} is still being written by another process") from None
    try:
        yield
    finally:
        lock.release()


class Loop:
    """One call of `CCFedAvg.start`."""

    def __init__(
        self,
        strategy: "CCFedAvg",
        grid: Grid,
        arrays: ArrayRecord,
        plan: Plan,
        patience: Patience,
        folder: Path | None,
        resume: bool,
    ) -> None:
        layout = Layout.of(arrays, plan.statistics)
        self.strategy, self.grid, self.arrays, self.patience, self.folder = strategy, grid, arrays, patience, folder
        self.course = Course(plan, secrets.token_hex(8), layout, arrays)
        self.journal = Journal(folder, plan.clients)
        self.result = Result(arrays=arrays)
        if folder is not None and resume:
            self._go_on(folder)
        elif folder is not None and folder.exists() and any(path.name != LOCK for path in folder.iterdir()):
            raise ValueError(f"folder is {str(folder)!r}, which is not empty: choose another, or resume the run in it")
        elif resume:
            raise ValueError("resume needs the folder of the run that is to go on")
        question = Ask("who", self.course.name, 0, plan.rounds, plan.seed, arrays=plan.arrays)
        self.devices = Devices(grid, question, plan.clients, self.course.introduce)

    def _go_on(self, folder: Path) -> None:
        content = checkpoint.read(folder, lambda sentence: log(WARNING, sentence))
        if content is None:
            log(WARNING, "%s has no checkpoint: the run starts from the beginning", folder)
            return
        checkpoint.check_same(content, self.course, folder)
        checkpoint.put_back(content, self.course, self.journal)
        self.arrays = self.result.arrays = self.course.arrays(self.arrays)
        log(INFO, "the run in %s goes on with round %d", folder, self.course.state.round + 1)

    def run(self, train: ConfigRecord, evaluate: ConfigRecord, evaluate_fn: EvaluateFn | None) -> Result:
        """Plays all rounds that are left."""
        rounds = self.course.plan.rounds
        self.journal.open(self.course)
        try:
            if self.course.state.round < rounds:
                self._connect()
                if self.course.state.round == 0 and evaluate_fn is not None:
                    first = evaluate_fn(0, self.arrays)
                    self._note(self.result.evaluate_metrics_serverapp, 0, first)
                    log(INFO, "[ROUND 0/%d] the first model%s", rounds, _told([first]))
            while self.course.state.round < rounds:
                self._round(train, evaluate, evaluate_fn)
        finally:
            self.journal.close(self.course)
        return self.result

    def _connect(self) -> None:
        """Waits until enough clients have said who they are."""
        needed, said = self.strategy.min_available_nodes, -1
        while True:
            self.devices.look()
            there = len(self.devices.connected)
            if there >= needed:
                return
            if self.devices.refused and not self.devices.asking and there == 0:
                reason = next(iter(self.devices.refused.values()))
                raise RuntimeError(f"no device can take part; the first of them: {reason}")
            if there != said:
                missing = sorted(set(range(self.course.plan.clients)).difference(self.devices.connected))
                log(INFO, "waiting for devices: %d of %d are there, not yet %s", there, needed, _clients(missing))
                said = there
            time.sleep(CONNECT_EVERY if not self.devices.asking else CONNECT_EVERY / 10)

    def _round(self, train: ConfigRecord, evaluate: ConfigRecord, evaluate_fn: EvaluateFn | None) -> None:
        number, strategy = self.course.state.round + 1, self.strategy
        began = time.perf_counter()
        asked = strategy.configure_train(number, self.arrays, train, self.grid)
        if self.course.forced:
            log(WARNING, "%s train although they should skip: %s", _clients(self.course.forced), NO_PAST)
        heard, messages = self._exchange(asked, MessageType.TRAIN, number)
        strategy.failed, strategy.refused = heard.failures, {}
        arrays, metrics = strategy.aggregate_train(number, heard.replies.values())
        if arrays is not None:
            self.arrays = self.result.arrays = arrays
        self._note(self.result.train_metrics_clientapp, number, metrics)
        found = [self._evaluate(number, evaluate)]
        if evaluate_fn is not None:
            found.insert(0, evaluate_fn(number, self.arrays))
            self._note(self.result.evaluate_metrics_serverapp, number, found[0])
        accuracy, loss = _first(found, strategy.accuracy_key), _first(found, strategy.loss_key)
        rows = self._rows(heard, messages)
        seconds = time.perf_counter() - began
        assert strategy.outcome is not None
        record = self.journal.add(self.course.selected, strategy.outcome, rows, 100 * accuracy, loss, seconds)
        text = "[ROUND %d/%d] %d trained, %d estimated, %d silent%s"
        told = _told([metrics, *found])
        log(INFO, text, number, self.course.plan.rounds, record.trained, record.estimated, record.silent, told)
        if self.folder is not None:
            checkpoint.write(self.folder, self.course, self.journal)

    def _evaluate(self, number: int, config: ConfigRecord) -> MetricRecord | None:
        asked = self.strategy.configure_evaluate(number, self.arrays, config, self.grid)
        heard, _ = self._exchange(asked, MessageType.EVALUATE, number)
        metrics = self.strategy.aggregate_evaluate(number, heard.replies.values())
        self._note(self.result.evaluate_metrics_clientapp, number, metrics)
        return metrics

    def _exchange(self, asked: Iterable[Message], kind: str, number: int) -> tuple[Exchanged, Mapping[int, Message]]:
        # Until they are sent, messages are addressed to clients: only now is it seen at which nodes they are.
        messages = {message.metadata.dst_node_id: message for message in asked}
        contents = {client: message.content for client, message in messages.items()}
        heard = exchange(self.grid, self.devices, contents, kind, self.patience, str(number))
        self.strategy.whose = {reply.metadata.reply_to_message_id: client for client, reply in heard.replies.items()}
        return heard, messages

    def _rows(self, heard: Exchanged, messages: Mapping[int, Message]) -> list[DeviceRow]:
        """What each selected client did in the round."""
        strategy, course, rows = self.strategy, self.course, []
        assert strategy.outcome is not None
        estimated = set(strategy.outcome.selected[strategy.outcome.estimated].tolist())
        for client in course.selected.tolist():
            reply, answer = heard.replies.get(client), strategy.taken.get(client)
            down = content_bytes(messages[client].content) * heard.times.get(client, 0) if client in messages else 0
            up = content_bytes(reply.content) if reply is not None else 0
            did, why, seconds = ("estimated" if client in estimated else "silent"), "", 0.0
            if answer is not None:
                did = ("repeated" if answer.repeated else "trained") if answer.trained else "skipped"
                why, seconds = answer.why or (NO_PAST if client in course.forced else ""), answer.seconds
            elif client in strategy.refused or client in heard.failures:
                did = "refused" if client in strategy.refused else "failed"
                why = strategy.refused.get(client) or heard.failures[client]
            rows.append(DeviceRow(strategy.outcome.round, client, did, seconds, up, down, why))
        return rows

    def _note(self, into: dict[int, MetricRecord], number: int, metrics: MetricRecord | None) -> None:
        if metrics is not None:
            into[number] = metrics


def _first(found: Iterable[MetricRecord | None], key: str) -> float:
    """The metric `key` of the first evaluation that has it, or NaN."""
    for metrics in found:
        value = None if metrics is None else metrics.get(key)
        if isinstance(value, int | float):
            return float(value)
    return float("nan")


def _told(found: Iterable[MetricRecord | None]) -> str:
    """The metrics that are single numbers, such as "; train_loss 0.31, eval_acc 0.92"."""
    numbers = [
        f"{name} {value:.4g}"
        for metrics in found
        for name, value in (metrics or {}).items()
        if isinstance(value, int | float)
    ]
    return f"; {', '.join(numbers)}" if numbers else ""


def _clients(numbers: list[int], most: int = 20) -> str:
    """Such as "clients 3, 5 and 8 more"."""
    more = f" and {len(numbers) - most} more" if len(numbers) > most else ""
    return f"clients {', '.join(map(str, numbers[:most]))}{more}"
