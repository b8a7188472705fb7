"""docs/results.md: each claim of the paper, what was measured, whether it holds, and which numbers are off."""

from pathlib import Path

from ccfed.paper.catalogue import LARGE_MODEL, PLANS
from ccfed.paper.claims import CLAIMS
from ccfed.paper.outputs import NOT_RUN, Verdict, cell_text, counts, mean_of_last_ten, provenance, verdict
from ccfed.paper.plan import Entry, Plan, unique
from ccfed.paper.published import reasons
from ccfed.paper.store import Finished, Store
from ccfed.paper.studies import DATA_TITLES, MODEL_TITLES
from ccfed.simulation.progress import in_time
from ccfed.simulation.settings import Settings

HEAD = """# The paper's results, and ours

Every number here comes from the finished runs in `results/cells.jsonl`; this page is written from them by
`ccfed reproduce all --draw-only --report docs/results.md`, and no setting was tuned to meet a number. The tables and
figures themselves, ours beside the paper's, are `results/NAME.md`, `.csv`, `.png` and `.pdf`. A number counts as
reproduced within 2.5 points of the paper's where there is one seed, and within two standard deviations, theirs and ours
combined, where there are several.

<!-- not run: takes minutes on a large GPU, and days on a processor -->
```sh
ccfed reproduce --list
ccfed reproduce all-but-resnet --out results
```

The second line goes on where it was stopped (Ctrl-C, SIGTERM, or `--limit MINUTES`), and makes no finished run again.
`--methods`, `--settings NAME=VALUE`, `--seeds`, `--rounds` and `--steps` run less; two calls with different
`--settings`, such as `data=cifar10` and `data=fmnist`, may share a folder and a GPU."""


ABOUT_CLAIMS = """\
In our words. Those on the tables and on `r-W` were checked against the paper's own numbers, which bear them out.
`distance`, `nova` and `convergence` are figures without numbers: there the claim is how we read the figure. "open"
means that the runs cannot tell, mostly as seeds differ by more than methods do; ± is the standard error of the
difference between runs of the same seed."""

HOLDS = {True: "yes", False: "**no**", None: "open"}


def write_report(store: Store, path: Path) -> None:
    """Writes the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report(store), encoding="utf-8")


def report(store: Store) -> str:
    """The page as Markdown."""
    plans = [make() for make in PLANS.values()]
    parts = [HEAD, "## Claims", ABOUT_CLAIMS, _claims(store), "## Numbers reproduced", _numbers(plans, store)]
    off = _off(plans, store)
    if off:
        parts += ["## Numbers that are off", off]
    parts += ["## What was run", *_runs(plans, store)]
    return "\n\n".join(parts) + "\n"


def _claims(store: Store) -> str:
    lines = ["| table or figure | the paper claims | we measured | holds |", "|---|---|---|---|"]
    for claim in CLAIMS:
        found = claim.check(store)
        text = (NOT_RUN, "") if found is None else (found.text, HOLDS[found.holds])
        lines.append(f"| `{claim.plan}` | {claim.text} | {text[0]} | {text[1]} |")
    return "\n".join(lines)


def _numbers(plans: list[Plan], store: Store) -> str:
    lines = ["| table or figure | numbers of the paper | reproduced | off | not run yet |", "|---|---:|---:|---:|---:|"]
    for plan in plans:
        compared = [entry for entry in plan.entries if entry.paper]
        if compared:
            found = [verdict(entry, store) for entry in compared]
            kinds = (Verdict.REPRODUCED, Verdict.OFF, Verdict.NOT_RUN)
            numbers = " | ".join(str(found.count(kind)) for kind in kinds)
            lines.append(f"| `{plan.name}` | {len(compared)} | {numbers} |")
    return "\n".join(lines)


def _off(plans: list[Plan], store: Store) -> str:
    lines = ["| table or figure | where | ours (the paper's) | reason |", "|---|---|---|---|"]
    given: list[str] = []  # the reasons, which stand below the table once
    for plan in plans:
        for entry in plan.entries:
            if verdict(entry, store) is Verdict.OFF:
                numbers = cell_text(entry, store).removesuffix(" *")
                theirs = entry.paper.mean_last_10 if entry.paper else None
                if theirs is not None:
                    numbers += f"; mean of the last ten rounds {mean_of_last_ten(entry, store):.2f} ({theirs:.2f})"
                where = ", ".join(value for _, value in entry.labels)
                reason = reason_of(plan, entry, store)
                if reason is not None and reason not in given:
                    given.append(reason)
                which = "not known" if reason is None else f"({given.index(reason) + 1})"
                lines.append(f"| `{plan.name}` | {where} | {numbers} | {which} |")
    below = [f"({number}) {reason}" for number, reason in enumerate(given, 1)]
    return "\n\n".join(["\n".join(lines), *below]) if len(lines) > 2 else ""


def reason_of(plan: Plan, entry: Entry, store: Store) -> str | None:
    """Why a number is off, from reasons.csv: the first row of the plan whose NAME=VALUE (separated by ;, all of them;
    nothing for any entry) fit the entry's labels, and that accounts for as many points (`within`; empty: for any)."""
    assert entry.paper is not None
    points = abs(store.mean(entry) - entry.paper.accuracy)
    for row in reasons():
        wanted = [pair.partition("=")[::2] for pair in row["where"].split(";") if pair]
        fits = row["plan"] == plan.name and all(entry.label(name.strip()) == value.strip() for name, value in wanted)
        if fits and (not row["within"] or points <= float(row["within"])):
            return row["reason"]
    return None


def _runs(plans: list[Plan], store: Store) -> list[str]:
    lines = []
    for plan in plans:
        if plan.cells:
            lines.append(f"- `{plan.name}`: {provenance(plan, store) or NOT_RUN + '.'}")
            left = counts(plan, store)[Verdict.NOT_RUN]
            if left and store.missing(plan.cells) != plan.cells:
                lines[-1] += f" {left} of its {len(plan.entries)} numbers are not run yet."
        else:
            lines.append(f"- `{plan.name}`: computed on the spot, with nothing to train.")
    texts = ["\n".join(lines)]
    if len(store):
        texts.append(_speeds(store))
    small = unique(cell for plan in plans for cell in plan.cells if cell.settings.model != LARGE_MODEL)
    made = [run for cell in small if (run := store.get(cell)) is not None]
    texts.append(
        f"Everything but ResNet-18 is {len(small)} runs. {len(made)} of them are made"
        + (f", in {in_time(sum(run.seconds for run in made))} of rounds" if made else "")
        + "; the aim for all of them is 10 minutes on one H200."
    )
    commands = sorted({str(run.made["command"]) for run in store if "command" in run.made})
    if commands:
        texts.append("Commands:\n\n" + "\n".join(f"    {command}" for command in commands))
    return texts


def _speeds(store: Store) -> str:
    """What the rounds took, by machine, data and model."""
    lines = [
        "The rounds of the runs took, with the tests of the global models and without start-up (of calls that ran at"
        " the same time, each is counted):",
        "",
        "| machine | data, model | runs | client-steps | time | client-steps a second |",
        "|---|---|---:|---:|---:|---:|",
    ]
    kinds: dict[tuple[str, str], list[Finished]] = {}
    for run in store:
        data, model = (run.settings.get(name, getattr(Settings, name)) for name in ("data", "model"))
        what = f"{DATA_TITLES.get(data, data)}, {MODEL_TITLES.get(model, model)}"
        kinds.setdefault((str(run.made.get("machine", "unknown")), what), []).append(run)
    for (machine, what), made in sorted(kinds.items()):
        steps, seconds = sum(sum(run.client_steps) for run in made), sum(run.seconds for run in made)
        numbers = f"{len(made)} | {steps:,} | {in_time(seconds)} | {steps / max(seconds, 1e-9):,.0f}"
        lines.append(f"| {machine} | {what} | {numbers} |")
    return "\n".join(lines)
