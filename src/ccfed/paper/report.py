"""docs/results.md: each claim of the paper, what was measured, whether it holds, and which numbers are off."""

from pathlib import Path

from ccfed.paper.catalogue import PLANS
from ccfed.paper.claims import CLAIMS
from ccfed.paper.outputs import NOT_RUN, Verdict, cell_text, counts, provenance, verdict
from ccfed.paper.plan import Entry, Plan
from ccfed.paper.published import reasons
from ccfed.paper.store import Store
from ccfed.simulation.progress import in_time

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
means that seeds differ by more than methods do; ± is the standard error of the difference between runs of the same
seed."""

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
    for plan in plans:
        for entry in plan.entries:
            if verdict(entry, store) is Verdict.OFF:
                numbers = cell_text(entry, store).removesuffix(" *")
                where = ", ".join(value for _, value in entry.labels)
                lines.append(f"| `{plan.name}` | {where} | {numbers} | {reason_of(plan, entry)} |")
    return "\n".join(lines) if len(lines) > 2 else ""


def reason_of(plan: Plan, entry: Entry) -> str:
    """Why a number is off, from reasons.csv: the first row of the plan whose NAME=VALUE (separated by ;, all of them;
    nothing for any entry) fit the entry's labels."""
    for row in reasons():
        wanted = [pair.partition("=")[::2] for pair in row["where"].split(";") if pair]
        if row["plan"] == plan.name and all(entry.label(name.strip()) == value.strip() for name, value in wanted):
            return row["reason"]
    return "not known"


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
    for machine in sorted({str(run.made.get("machine", "unknown")) for run in store}):
        made = [run for run in store if str(run.made.get("machine", "unknown")) == machine]
        steps, seconds = sum(sum(run.client_steps) for run in made), sum(run.seconds for run in made)
        texts.append(
            f"{machine}: {len(made)} runs, {steps:,} client-steps, {in_time(seconds)} of rounds (tests of the global"
            f" models included, start-up not): {steps / max(seconds, 1e-9):,.0f} client-steps a second."
        )
    commands = sorted({str(run.made["command"]) for run in store if "command" in run.made})
    if commands:
        texts.append("Commands:\n\n" + "\n".join(f"    {command}" for command in commands))
    return texts
