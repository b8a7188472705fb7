"""The server's side of a federation, round by round, without any network: whom to ask what, and what the answers make.

It plays the same `algorithm.play` as a simulation does, only later: when the devices have said who trained.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from flwr.app import ArrayRecord
from torch import Tensor

from ccfed.algorithm import Method, Moment, Outcome, Schedule, State, budgets, play, schedules, select
from ccfed.algorithm.history import kept_on_server
from ccfed.algorithm.server import mean
from ccfed.flower.answers import Taken
from ccfed.flower.arrays import Layout
from ccfed.flower.history import DeviceHistory
from ccfed.flower.wire import Answer, Ask

PLANS = ("skip", "train", "ask")
FORESEEABLE = tuple(name for name, make in schedules.SCHEDULES.items() if make().foreseeable)


@dataclass(frozen=True)
class Plan:
    """What is fixed about a run before it starts. `estimate_failed`: a client that fails, but whose past the server
    keeps, is estimated as if it had skipped."""

    method: Method
    clients: int
    rounds: int
    seed: int = 0
    steps: int = 1
    participation: float = 1.0
    weighted: bool = False
    estimate_failed: bool = True
    arrays: str = "arrays"
    statistics: tuple[str, ...] = ()


class Course:
    """A run on its way: the algorithm's State, what each device's owner decided, and each device's trainings so far.

    A model's running statistics are no part of the State. The next ones are the mean over those who trained: a move of
    theirs that is repeated leads beyond what was ever seen, and a variance soon below zero.
    """

    def __init__(self, plan: Plan, name: str, layout: Layout, arrays: ArrayRecord) -> None:
        model, self.statistics = self._apart(layout, layout.flat(arrays))
        method, rule = plan.method, plan.method.estimator
        on_server = kept_on_server(method.keep, plan.clients, method.on_server)
        history = DeviceHistory(on_server, model, rule.state_size, rule.keeps, rule.uses_trained_from)
        self.plan, self.name, self.layout = plan, name, layout
        self.state, self.history = State(model, history), history
        self.given = method.budget(torch.arange(plan.clients)).clone()  # the p of those whose owner decided nothing
        self.p = self.given.clone()
        self.schedules: dict[int, str] = {}  # client -> its owner's schedule, where that is not the method's
        self.trainings = torch.zeros(plan.clients, dtype=torch.int64)
        self.weights = torch.ones(plan.clients, dtype=torch.float64)
        self.selected = torch.zeros(0, dtype=torch.int64)
        self.asked: dict[int, Ask] = {}
        self._now = self.p  # as they were when the round began: an owner that decides anew is heard in the next one
        self.forced: list[int] = []  # those who should skip in this round, but have no past that the server knows of
        self._foreseen: set[int] = set()

    @staticmethod
    def _apart(layout: Layout, flat: Tensor) -> tuple[Tensor, Tensor]:
        """The parameters and the running statistics in a vector."""
        return flat[: layout.parameters], flat[layout.parameters :]

    def take(self, arrays: ArrayRecord) -> None:
        """Puts another model in the place of the present one."""
        self.state.model, self.statistics = self._apart(self.layout, self.layout.flat(arrays))

    def arrays(self, before: ArrayRecord | None) -> ArrayRecord:
        """The present model as Flower's arrays; what is neither parameter nor statistic is taken from `before`."""
        return self.layout.pack(torch.cat([self.state.model, self.statistics]), before)

    def introduce(self, told: Answer) -> None:
        """Notes what a device's owner decided about its budget and schedule; ValueError if that cannot be."""
        if told.schedule not in ("", "own", *FORESEEABLE):
            raise ValueError(f"its schedule is {told.schedule!r}: do both sides have the same ccfed?")
        p = self.given[told.client]
        if told.trainings != 0:
            p = budgets.energy_plan(self.plan.rounds, [told.trainings])[0]
        elif told.p != 0:
            p = budgets.explicit([told.p])[0]
        self.p[told.client] = p
        self.schedules.pop(told.client, None)
        if told.schedule:
            self.schedules[told.client] = told.schedule

    def begin(self) -> dict[int, tuple[Ask, bool]]:
        """The clients that must be asked in this round: what, and whether they need the model for it.

        Not asked are those who skip for certain and have nothing to send: with their past on the server, or silent.
        """
        plan, t = self.plan, self.state.round
        rule = plan.method.estimator
        self._now = self.p.clone()
        self.selected = select(plan.clients, plan.participation, t, plan.seed)
        knows = self.history.knows(self.selected).tolist()
        known = self.history.last_rounds(self.selected).tolist()
        there = self.history.on_server[self.selected].tolist()
        steps = plan.method.work(self._now[self.selected], plan.steps).tolist()
        self.asked, self.forced, self._foreseen = {}, [], set()
        orders: dict[int, tuple[Ask, bool]] = {}
        for i, (client, decision) in enumerate(zip(self.selected.tolist(), self._decisions(), strict=True)):
            if rule.needs_past and not knows[i]:
                if decision == "skip":
                    self.forced.append(client)
                decision = "train"
            if decision == "skip" and (there[i] or not rule.keeps):
                self._foreseen.add(client)
                continue
            ask = Ask(
                kind="round",
                run=self.name,
                round=t,
                rounds=plan.rounds,
                seed=plan.seed,
                client=client,
                plan=decision,
                keeps="nobody" if not rule.keeps else "server" if there[i] else "client",
                known=known[i],
                newer=rule.note is None and not rule.uses_trained_from,
                needs_past=rule.needs_past,
                before=rule.note is not None and rule.keeps > 0 and not there[i],
                trainings=int(self.trainings[client]),
                steps=steps[i],
                p=float(self._now[client]),
                arrays=plan.arrays,
            )
            self.asked[client] = ask
            orders[client] = (ask, decision != "skip" or rule.needs_past)
        return orders

    def finish(self, answers: Mapping[int, Taken]) -> Outcome:
        """Plays the round with those whose answers were taken, and with those who can be estimated without one."""
        method = self.plan.method
        knows = dict(zip(self.selected.tolist(), self.history.knows(self.selected).tolist(), strict=True))
        speakers = [client for client in self.selected.tolist() if self._takes_part(client, answers, knows[client])]
        trained = {client for client in speakers if client in answers and answers[client].trained}
        self.history.lend(self._lent_by(answers))
        for client in trained:
            self.weights[client] = answers[client].weight or 1.0

        # Whatever the schedule was, it is decided by now: the method is played with what happened.
        happened = torch.tensor([client in trained for client in speakers], dtype=torch.bool)
        played = method.but(p=self._now, schedule=Schedule(method.schedule.name, lambda now: happened))
        weights = self.weights if self.plan.weighted else None
        playing = play(
            self.state,
            played,
            torch.tensor(speakers, dtype=torch.int64),
            steps=self.plan.steps,
            rounds=self.plan.rounds,
            seed=self.plan.seed,
            weights=weights,
        )
        work = next(playing)
        sent = [answers[client].move for client in work.clients.tolist()]
        whole = torch.stack(sent) if sent else self.state.model.new_zeros(0, self.layout.size)  # type: ignore[arg-type]
        moves, changes = whole[:, : self.layout.parameters], whole[:, self.layout.parameters :]
        try:
            playing.send(moves)
        except StopIteration as stop:
            outcome: Outcome = stop.value
        self.history.lend({})
        if sent:
            shares = None if weights is None else weights[work.clients]
            self.statistics = self.statistics + mean(changes, shares, work.steps)
        self.trainings[work.clients] += 1
        return outcome

    def _lent_by(self, answers: Mapping[int, Taken]) -> dict[int, Tensor]:
        """The last moves that devices with pasts of their own have sent; what they have lost, the server forgets."""
        lent = {}
        for client, answer in answers.items():
            ask = self.asked[client]
            sent = answer.before if answer.trained else answer.move
            if sent is not None:
                lent[client] = sent[: self.layout.parameters]
                if answer.since > ask.known and not answer.trained:
                    self.history.trained_later(client, answer.since)
            elif ask.keeps == "client" and (ask.before or not answer.trained):
                self.history.forget(client)
        return lent

    def _takes_part(self, client: int, answers: Mapping[int, Taken], known: bool) -> bool:
        if client in answers or client in self._foreseen:
            return True
        kept_here = bool(self.history.on_server[client]) and self.plan.method.estimator.needs_past
        return self.plan.estimate_failed and kept_here and known

    def _decisions(self) -> list[str]:
        """What each selected client does, as far as the server can foresee it: "train", "skip" or "ask"."""
        plan, t, chosen = self.plan, self.state.round, self.selected
        now = Moment(t, plan.rounds, chosen, self._now[chosen], plan.seed)
        rule = plan.method.schedule
        decided = (
            [PLANS[int(trains)] for trains in rule.decide(now).tolist()] if rule.foreseeable else ["ask"] * len(chosen)
        )
        for i, client in enumerate(chosen.tolist()):
            name = self.schedules.get(client)
            if name == "own":
                decided[i] = "ask"
            elif name is not None:
                alone = replace(now, clients=chosen[i : i + 1], p=self._now[chosen[i : i + 1]])
                decided[i] = PLANS[int(schedules.SCHEDULES[name]().decide(alone)[0])]
        return decided
