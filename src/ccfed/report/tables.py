"""The tables of the page: results and costs, settings with their differences, and the runs themselves."""

from collections.abc import Callable, Sequence
from typing import Any

from ccfed.report.html import Html, join, tag
from ccfed.report.lines import Line, deviation, differs, shown
from ccfed.report.reading import FolderRun
from ccfed.simulation.results import in_bytes

JOULES_PER_FLOP = 20e-12
RUNS_LISTED, RUNS_OPEN = 500, 6
LONG = 20  # letters beyond which a setting's value gets some room


def in_percent(values: Sequence[float]) -> str:
    """The mean of `values`, with one standard deviation where there are several: 89.2 ± 0.5 %."""
    if not values:
        return "–"
    spread = deviation(values)
    return f"{sum(values) / len(values):.1f}" + ("" if spread is None else f" ± {spread:.1f}") + " %"


def whole_percent(share: float) -> str:
    """A share as one reads it: 51 %."""
    return f"{100 * share:.0f} %"


def cost_table(lines: Sequence[Line]) -> Html:
    """Accuracy and what it cost, one row a line, means over its seeds."""
    heads = (
        ("method", ""),
        ("accuracy", "after the last round"),
        ("best round", ""),
        ("client-steps", "steps of SGD, all clients together"),
        ("compute saved", "against full training of everyone selected"),
        ("FLOPs", "estimated from the layers of the model"),
        ("energy", "FLOPs times the assumption below"),
        ("up", "bytes from clients to server"),
        ("down", "bytes from server to clients"),
        ("clients store", "all clients together"),
        ("server stores", ""),
    )
    head = tag("tr", *(tag("th", name, scope="col", title=why or None) for name, why in heads))
    body = [_cost_row(line, str(i)) for i, line in enumerate(lines)]
    return _scrolled(tag("table", tag("thead", head), tag("tbody", *body)), "Costs")


def _cost_row(line: Line, number: str) -> Html:
    flops, saved = line.mean("flops"), line.mean("compute_saved")
    so_far = Html("") if line.finished else tag("span", " so far", class_="quiet")
    energy = tag(
        "td",
        "–" if flops is None else in_units(flops * JOULES_PER_FLOP, "J"),
        class_="energy",
        data_flops=None if flops is None else f"{flops:.6g}",
    )
    return tag(
        "tr",
        tag("th", tag("span", class_="swatch", data_line=number), line.label, so_far, scope="row"),
        tag("td", in_percent(line.accuracies())),
        tag("td", in_percent(line.accuracies("best"))),
        _number(line.mean("client_steps"), lambda value: f"{value:,.0f}"),
        _number(saved, lambda value: whole_percent(value)),
        _number(flops, lambda value: in_units(value, "FLOP")),
        energy,
        *(_number(line.mean(name), in_bytes) for name in ("bytes_up", "bytes_down")),
        *(_number(line.mean(f"storage_{who}_bytes"), in_bytes) for who in ("client", "server")),
    )


def _number(value: float | None, write: Callable[[float], str]) -> Html:
    return tag("td", "–" if value is None else write(value))


def in_units(value: float, unit: str) -> str:
    """A number with its unit as one reads it: 2.4 GFLOP, 48 mJ."""
    if value == 0:
        return f"0 {unit}"
    for factor, prefix in ((1e-6, "µ"), (1e-3, "m"), (1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        if abs(value) < 999.5 * factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value / 1e15:.3g} P{unit}" if abs(value) < 999.5e15 else f"{value:.2e} {unit}"


def settings_table(lines: Sequence[Line]) -> Html:
    """First the settings in which the lines differ, marked where they are not the first line's; then, folded away,
    those that they share."""
    names = list(dict.fromkeys(name for line in lines for name in line.settings if name not in ("seed", "method")))
    if not names:
        return tag("p", "The folders hold no settings.", class_="quiet")
    every = [line.settings for line in lines]
    differing = [name for name in names if differs(name, every)]
    shared = [name for name in names if name not in differing]
    parts = []
    if differing:
        head = tag("tr", tag("th", "method", scope="col"), *(tag("th", name, scope="col") for name in differing))
        rows = [_differences(line, lines[0], differing) for line in lines]
        parts.append(tag("p", f"Marked: what differs from {lines[0].label}.", class_="quiet"))
        parts.append(_scrolled(tag("table", tag("thead", head), tag("tbody", *rows), class_="differ"), "Differences"))
    elif len(lines) > 1:
        parts.append(tag("p", "The lines differ in nothing but their method.", class_="quiet"))
    values = {name: next(each[name] for each in every if name in each) for name in shared}
    rows = [tag("div", tag("dt", name), tag("dd", shown(value))) for name, value in values.items()]
    if rows:
        title = "All settings" if len(lines) == 1 else "Settings that all lines share"
        heading = tag("summary", f"{title} ({len(rows)})")
        parts.append(tag("details", heading, tag("dl", *rows, class_="shared"), open="" if len(lines) == 1 else None))
    return join(*parts)


def _differences(line: Line, first: Line, names: Sequence[str]) -> Html:
    cells = []
    for name in names:
        value = line.settings.get(name)
        text = "–" if value is None else shown(value)
        kinds = ["other"] if differs(name, [line.settings, first.settings]) else []
        kinds += ["long"] if len(text) > LONG else []
        cells.append(tag("td", text, class_=" ".join(kinds) or None))
    return tag("tr", tag("th", line.label, scope="row"), *cells)


def runs_table(lines: Sequence[Line]) -> Html:
    """Every run with its folder, how far it came, and what computed it."""
    heads = ("method", "seed", "rounds", "accuracy", "time", "state", "engine", "folder")
    words = ("state", "engine", "folder")
    head = tag("tr", *(tag("th", name, scope="col", class_="words" if name in words else None) for name in heads))
    every = [(line, run) for line in lines for run in line.runs]
    rows = [_run(line, run) for line, run in every[:RUNS_LISTED]]
    rest = len(every) - len(rows)
    more = tag("p", f"{rest} more runs are not listed.", class_="quiet") if rest else Html("")
    table = join(_scrolled(tag("table", tag("thead", head), tag("tbody", *rows)), "Runs"), more)
    return table if len(every) <= RUNS_OPEN else tag("details", tag("summary", f"All {len(every)} runs"), table)


def _run(line: Line, run: FolderRun) -> Html:
    accuracy = in_percent(Line("", (run,)).accuracies())
    where: Any = [run.summary.get(name) for name in ("engine", "device")]
    return tag(
        "tr",
        tag("th", line.label, scope="row"),
        tag("td", "–" if run.seed is None else str(run.seed)),
        tag("td", f"{run.played:,}" + (f" of {run.planned:,}" if run.planned not in (None, run.played) else "")),
        tag("td", accuracy),
        tag("td", f"{run.total('seconds'):,.1f} s"),
        tag("td", state_of(run), class_="words"),
        tag("td", ", ".join(str(word) for word in where if word) or "–", class_="words"),
        tag("td", str(run.folder), class_="words"),
    )


def state_of(run: FolderRun) -> str:
    """How far a run came, in a few words."""
    state = "finished" if run.finished else "broken off" if run.summary else "on its way, or broken off"
    # Runs on real devices also tell how many answers never came or could not be used.
    odd = [f"{run.summary[what]} {what}" for what in ("failed", "refused") if run.summary.get(what)]
    return ", ".join([state, *odd])


def _scrolled(table: Html, label: str) -> Html:
    return tag("div", table, class_="scrolled", tabindex="0", role="region", aria_label=label)
