"""What the paper claims, and what the finished runs say about it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ccfed.paper.catalogue import PLANS
from ccfed.paper.outputs import SINGLE
from ccfed.paper.plan import Entry, Plan, values_of
from ccfed.paper.store import Finished, Store
from ccfed.paper.theory import measured, slope

FULL, OURS, ONE, TWO, BOTH = "FedAvg (full)", "CC-FedAvg", "Strategy 1", "Strategy 2", "CC-FedAvg(c)"
BEST, LAST, FEDOPT = "FedAvg (dropout, best)", "FedAvg (dropout, last)", "FedOpt (all skip together)"


class NotRunYet(Exception):
    """A run that a claim rests on is not in the store."""


@dataclass(frozen=True)
class Found:
    """What was measured, in words, and whether the claim holds by it: None where the seeds differ too much to tell."""

    text: str
    holds: bool | None


@cache
def plan_of(name: str) -> Plan:
    """The plan of this name, made once."""
    return PLANS[name]()


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper's (in our words), the plan it belongs to, and how it is put to the test."""

    plan: str
    text: str
    test: Callable[["Numbers"], Found]

    def check(self, store: Store) -> Found | None:
        """What the store says, None if something is not run yet."""
        try:
            return self.test(Numbers(plan_of(self.plan), store))
        except NotRunYet:
            return None


@dataclass(frozen=True)
class Numbers:
    """A plan's numbers by label, as `numbers(method="CC-FedAvg", iid="0.1")`."""

    plan: Plan
    store: Store

    def entry(self, **labels: str) -> Entry:
        """The one entry with these labels."""
        (found,) = [e for e in self.plan.entries if all(e.label(name) == value for name, value in labels.items())]
        return found

    def __call__(self, **labels: str) -> float:
        self.runs(**labels)
        return self.store.mean(self.entry(**labels))

    def runs(self, **labels: str) -> list[Finished]:
        """The runs of the entry with these labels, all of which must have finished."""
        entry = self.entry(**labels)
        found = self.store.of(entry)
        if len(found) < len(entry.seeds):
            raise NotRunYet
        return found

    def last(self, **labels: str) -> list[float]:
        """The accuracy after the last round of each finished run of the entry with these labels."""
        return [run.measure("last") for run in self.runs(**labels)]

    def each(self, *labels: str, **fixed: str) -> list[dict[str, str]]:
        """The combinations of these labels' values that the plan has, among the entries with the `fixed` labels."""
        rows = [e for e in self.plan.entries if all(e.label(n) == v for n, v in fixed.items())]
        return list({tuple(e.label(n) for n in labels): {n: e.label(n) for n in labels} for e in rows}.values())


def share(results: Iterable[bool], what: str, most: float = 1.0) -> Found:
    """'13 of 16 WHAT'; holds if at least the share `most` of them do."""
    found = list(results)
    return Found(f"{sum(found)} of {len(found)} {what}", sum(found) >= most * len(found))


def close_to_full(n: Numbers) -> Found:
    """CC-FedAvg against FedAvg (full), with the steps that each made."""
    places = n.each("schedule", "iid")
    gaps = [n(method=FULL, **at) - n(method=OURS, **at) for at in places]
    made = sum(sum(run.client_steps) for at in places for run in n.runs(method=OURS, **at))
    full = sum(run.client_steps_full for at in places for run in n.runs(method=OURS, **at))
    text = f"at most {max(gaps):.2f} points below, with {made / full:.0%} of the client-steps"
    return Found(text, max(gaps) <= SINGLE)


def best_of_the_frugal(n: Numbers) -> Found:
    """CC-FedAvg above dropout and both other strategies."""
    places = n.each("schedule", "iid")
    results = [n(method=OURS, **at) > max(n(method=m, **at) for m in (ONE, TWO, BEST, LAST)) for at in places]
    return share(results, "settings")


def advantage_grows(n: Numbers) -> Found:
    """The lead over Strategy 1 at IID 0 and at IID 1."""
    leads = {
        (s, iid): n(method=OURS, schedule=s, iid=iid) - n(method=ONE, schedule=s, iid=iid)
        for s in ("round-robin", "ad-hoc")
        for iid in ("0.0", "1.0")
    }
    text = "; ".join(
        f"{s}: {leads[s, '0.0']:.1f} points at IID 0, {leads[s, '1.0']:.1f} at IID 1" for s in ("round-robin", "ad-hoc")
    )
    return Found(text, all(leads[s, "0.0"] > leads[s, "1.0"] for s in ("round-robin", "ad-hoc")))


def dropout_forgets(n: Numbers) -> Found:
    """The best round of dropout against its last, at IID 0."""
    at = {"schedule": "ad-hoc", "iid": "0.0"}
    lost = n(method=BEST, **at) - n(method=LAST, **at)
    return Found(f"{lost:.1f} points lost at IID 0 from the best round to the last", lost > SINGLE)


def better_device(n: Numbers) -> Found:
    """CC-FedAvg above both other strategies, for every participation. The same seed gives all methods the same shards
    and selections, so they are compared seed by seed; a lag of less than twice its standard error tells nothing."""
    places = n.each("participation")
    lags = []
    for at in places:
        rival = max((ONE, TWO), key=lambda m: n(method=m, **at))
        leads = np.subtract(n.last(method=OURS, **at), n.last(method=rival, **at))
        if leads.mean() <= 0:
            error = leads.std(ddof=1) / len(leads) ** 0.5 if len(leads) > 1 else 0.0
            lags.append((at["participation"], -leads.mean(), error, rival))
    found = share((at["participation"] not in [lag[0] for lag in lags] for at in places), "participations")
    behind = [f"at {at} behind {rival} by {lag:.1f} ± {error:.1f}" for at, lag, error, rival in lags]
    clear = any(lag > 2 * error for _, lag, error, _ in lags)
    return Found("; ".join([found.text, *behind]), False if clear else None if lags else True)


def gap_shrinks(n: Numbers) -> Found:
    """The gap to FedAvg (full) at the least and at the most participation."""
    least, *_, most = values_of(n.plan.entries, "participation")
    gaps = [n(method=FULL, participation=at) - n(method=OURS, participation=at) for at in (least, most)]
    return Found(f"{gaps[0]:.2f} points at {least}, {gaps[1]:.2f} at {most}", gaps[1] < gaps[0])


def combination(n: Numbers) -> Found:
    """CC-FedAvg(c) against CC-FedAvg in both studies."""
    silo = [at for at in n.each("study", "setting") if at["study"].startswith("CIFAR")]
    device = [at for at in n.each("study", "setting") if not at["study"].startswith("CIFAR")]
    below = [n(method=BOTH, **at) < n(method=OURS, **at) for at in silo]
    near = [n(method=BOTH, **at) > n(method=OURS, **at) - 1 for at in device]
    text = f"below CC-FedAvg in {sum(below)} of {len(below)} settings of CIFAR-10; above it or within a point in"
    return Found(f"{text} {sum(near)} of {len(near)} of Fashion-MNIST", all(below) and all(near))


def grid_wins(n: Numbers) -> Found:
    """CC-FedAvg above Strategies 1 and 2 over the whole grid."""
    places = n.each("data", "r", "W")
    results = [n(method=OURS, **at) > max(n(method=m, **at) for m in (ONE, TWO)) for at in places]
    return share(results, "pairs of r and W on both data sets", most=0.75)


def grid_robust(n: Numbers) -> Found:
    """How much CC-FedAvg loses from the mildest to the hardest pair with r < 1."""
    texts, holds = [], True
    for data in values_of(n.plan.entries, "data"):
        mild, hard = n(data=data, method=OURS, r="0.25", W="2"), n(data=data, method=OURS, r="0.75", W="16")
        other = n(data=data, method=TWO, r="0.25", W="2") - n(data=data, method=TWO, r="0.75", W="16")
        texts.append(f"{data}: {mild - hard:.1f} points, Strategy 2 {other:.1f}")
        holds = holds and mild - hard < other
    return Found("; ".join(texts), holds)


def beats_fedopt(n: Numbers) -> Found:
    """CC-FedAvg above FedOpt, at equal cost."""
    places = n.each("data", "W", method=FEDOPT)
    return share((n(method=OURS, **at) > n(method=FEDOPT, **at) for at in places), "values of W on both data sets")


def beats_fewer_rounds(n: Numbers) -> Found:
    """CC-FedAvg against FedAvg with as many trainings."""
    places = n.each("data", "W", method=OURS)
    results = [n(method=OURS, **at) > n(method="FedAvg, T/W rounds", **at) for at in places]
    return share(results, "values of W on both data sets", most=0.75)


def nearer(n: Numbers) -> Found:
    """Mean distance and cosine of both rules, each in its own run."""
    texts, holds = [], True
    for iid in values_of(n.plan.entries, "iid"):
        means = {}
        for name, rule in ((OURS, "last move"), (TWO, "last model")):
            (run,) = n.runs(method=name, iid=iid)
            means[name] = [float(np.mean(run.extra[rule][m])) for m in ("euclidean", "cosine")]
        (d3, c3), (d2, c2) = means[OURS], means[TWO]
        texts.append(f"IID {iid}: distance {d3:.2f} against {d2:.2f}, cosine {c3:.4f} against {c2:.4f}")
        holds = holds and d3 < d2 and c3 > c2
    return Found("; ".join(texts), holds)


def beats_nova(n: Numbers) -> Found:
    """CC-FedAvg against both forms of FedNova, on the CNN."""
    places = [at for at in n.each("study", "setting") if "CNN" in at["study"]]
    texts, holds = [], True
    for rival in [m for m in values_of(n.plan.entries, "method") if m.startswith("FedNova")]:
        leads = [n(method=OURS, **at) - n(method=rival, **at) for at in places]
        texts.append(f"{sum(lead > 0 for lead in leads)} of {len(leads)} against {rival} (least lead {min(leads):.1f})")
        holds = holds and min(leads) > -1
    return Found("above it in " + ", ".join(texts), holds)


def converges_alike(n: Numbers) -> Found:
    """The order of the four curves on Fashion-MNIST, by the mean of the last ten rounds."""
    texts, holds = [], True
    for study in values_of(n.plan.entries, "study"):
        if "MLP" not in study:
            continue
        tail = {m: n.runs(study=study, method=m)[0].measure("mean_last_10") for m in (FULL, OURS, ONE, TWO)}
        texts.append(f"{study}: " + ", ".join(f"{m} {value:.1f}" for m, value in tail.items()))
        holds = holds and tail[OURS] > max(tail[ONE], tail[TWO]) and tail[FULL] - tail[OURS] <= SINGLE
    return Found("; ".join(texts), holds)


def same_models(n: Numbers) -> Found:
    """Algorithms 1, 2 and 3, round by round, of each method that keeps pasts. Runs of one method that were made in
    different ways differ by rounding, so that they tell nothing."""
    same = []
    for method in (OURS, TWO, BOTH, FEDOPT):
        runs = [n.runs(method=f"{method}, Algorithm {i}")[0] for i in (1, 2, 3)]
        if len({tuple(run.made.get(what) for what in ("machine", "engine", "precision")) for run in runs}) == 1:
            same.append(len({run.accuracy for run in runs}) == 1)
        if method == OURS:
            up = ", ".join(f"{run.bytes_up / 1e9:.2f}" for run in runs)
    if not same:
        return Found("the three runs of each method were made on different machines, and differ by rounding", None)
    text = f"the same accuracy in every round with {sum(same)} of {len(same)} methods"
    if len(same) < 4:
        text += " (the others' runs were made on different machines, and differ by rounding)"
    return Found(f"{text}; {OURS}: GB up {up}", all(same))


def under_the_bound(n: Numbers) -> Found:
    """The experiment with known constants."""
    rows = measured()
    below = all(row["measured"] <= row["bound"] for row in rows)
    slopes = [slope(name) for name in (FULL, OURS)]
    text = f"under the bound for every T: {'yes' if below else 'no'}; slopes {slopes[0]:.2f} and {slopes[1]:.2f}"
    return Found(text, below and abs(slopes[0] - slopes[1]) < 0.1)


CLAIMS = (
    Claim("silo-cifar", "CC-FedAvg comes close to FedAvg (full), in every setting.", close_to_full),
    Claim("silo-cifar", "CC-FedAvg is better than dropout, Strategy 1 and Strategy 2.", best_of_the_frugal),
    Claim("silo-cifar", "The less IID the data, the more it leads over Strategy 1.", advantage_grows),
    Claim("silo-cifar", "Clients that drop out for good are forgotten.", dropout_forgets),
    Claim("device-fmnist1", "CC-FedAvg is better than Strategies 1 and 2 (classes random).", better_device),
    Claim("device-fmnist1", "With more participation it comes closer to FedAvg (full).", gap_shrinks),
    Claim("device-fmnist2", "CC-FedAvg is better than Strategies 1 and 2 (highly skewed).", better_device),
    Claim("device-fmnist3", "CC-FedAvg is better than Strategies 1 and 2 (moderately skewed).", better_device),
    Claim("compare-combination", "CC-FedAvg(c) helps with partial participation only.", combination),
    Claim("r-W", "CC-FedAvg is the best of the three strategies in most of the grid.", grid_wins),
    Claim("r-W", "It loses less than Strategy 2 as r and W grow.", grid_robust),
    Claim("efficiency", "At equal cost it is better than FedOpt.", beats_fedopt),
    Claim("efficiency", "At equal cost it is better than FedAvg with fewer rounds.", beats_fewer_rounds),
    Claim("distance", "The last move estimates a local model better than the last model does.", nearer),
    Claim("nova", "CC-FedAvg is better than FedNova, or as good (within a point), whatever K and T.", beats_nova),
    Claim("convergence", "CC-FedAvg converges like FedAvg, and above Strategies 1 and 2.", converges_alike),
    Claim("cost", "Algorithms 1, 2 and 3 give the same models.", same_models),
    Claim("theory", "CC-FedAvg converges at the rate of FedAvg.", under_the_bound),
)
"""The paper's claims, in the order of the tables and figures that show them."""
