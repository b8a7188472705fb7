"""The page itself: one HTML file with its style, script and data inside, and nothing that it fetches."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

import ccfed
from ccfed.files import write_whole
from ccfed.report.figures import MAPS, figures
from ccfed.report.headline import cards, headline, subtitle, title
from ccfed.report.html import Html, embedded_json, tag
from ccfed.report.lines import Line, lines_of
from ccfed.report.reading import find_runs, read_run
from ccfed.report.tables import cost_table, runs_table, settings_table

STYLES = ("page.css", "figure.css")
SCRIPTS = ("svg.js", "curves.js", "costs.js", "clients.js", "page.js")
NOTES = 12


def write_report(folders: Iterable[Path], out: Path) -> Path:
    """Reads the runs in `folders` and writes the page to `out` (into report.html there, if it is a folder); returns its
    path."""
    lines = lines_of([read_run(folder) for folder in find_runs(folders)])
    path = out / "report.html" if out.is_dir() else out
    write_whole(path, make_page(lines).encode())
    return path


def make_page(lines: Sequence[Line]) -> str:
    """The page for `lines`, as text."""
    script = Html('"use strict";\n' + "\n".join(_asset(name) for name in SCRIPTS))
    styles = [tag("style", Html(_asset(name)), id=name.removesuffix(".css") + "-style") for name in STYLES]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Nothing may be fetched, and no script may run but this one, whatever the files of the runs say.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src 'sha256-{digest}'"
    head = tag(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="color-scheme" content="light dark">'),
        Html(f'<meta name="generator" content="ccfed {ccfed.__version__}">'),
        Html('<link rel="icon" href="data:,">'),
        tag("title", title(lines)),
        *styles,
    )
    data = tag("script", embedded_json(figures(lines)), type="application/json", id="data")
    body = tag("body", _header(lines), tag("main", *_sections(lines)), _footer(), data, tag("script", script))
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _asset(name: str) -> str:
    return files("ccfed.report").joinpath("page", name).read_text(encoding="utf-8")


def _header(lines: Sequence[Line]) -> Html:
    choices = [
        tag("button", text, type="button", data_theme=theme, aria_pressed="true" if theme == "system" else "false")
        for theme, text in (("system", "System"), ("light", "Light"), ("dark", "Dark"))
    ]
    switch = tag("div", *choices, class_="themes", role="group", aria_label="Colours of the page")
    words = tag("div", tag("h1", title(lines)), tag("p", subtitle(lines), class_="quiet"))
    return tag("header", words, switch)


def _footer() -> Html:
    return tag(
        "footer",
        tag("p", f"Made by ccfed {ccfed.__version__}. This page holds everything it shows and fetches nothing."),
    )


def _sections(lines: Sequence[Line]) -> list[Html]:
    several = any(len(line.runs) > 1 for line in lines)
    return [
        _notes(lines),
        tag("section", tag("p", headline(lines), class_="headline"), cards(lines), aria_label="Results"),
        tag("noscript", tag("p", "The figures of this page need JavaScript; the tables do not.", class_="note")),
        _section("curves", "Learning curves", "Accuracy and loss of the global model on the test samples."),
        _section("worth", "Accuracy for its cost", "The same curves against what was spent so far."),
        tag(
            "section",
            tag("h2", "Costs"),
            tag("p", "Means over the seeds of each line." if several else "What it took in all.", class_="quiet"),
            cost_table(lines),
            tag("div", id="assumption"),
            id="costs",
        ),
        _section(
            "clients",
            "Who holds what, and who trains",
            "One row a client, the same row in all three figures."
            + (f" The page has room for {MAPS} runs." if sum(len(line.runs) for line in lines) > MAPS else ""),
        ),
        tag("section", tag("h2", "Settings"), settings_table(lines), id="settings"),
        tag("section", tag("h2", "Runs"), runs_table(lines), id="runs"),
    ]


def _section(name: str, heading: str, words: str) -> Html:
    return tag("section", tag("h2", heading), tag("p", words, class_="quiet"), tag("div", class_="figures"), id=name)


def _notes(lines: Sequence[Line]) -> Html:
    """What is not as it should be: runs that are not finished, and files that could not be read."""
    notes = []
    for line in lines:
        for run in line.runs:
            where = f"{line.label}, seed {run.seed}" if run.seed is not None else line.label
            if not run.finished:
                state = "broke off" if run.summary else "on its way, or broken off,"
                left_out = "" if run in line.counted else ": left out of means and curves"
                notes.append(f"{where}: {state} after {_rounds(run.played, run.planned)}{left_out}.")
            notes += [f"{where}: {trouble}." for trouble in run.troubles]
    if not notes:
        return Html("")
    more = [f"… and {len(notes) - NOTES} more, see Runs below."] if len(notes) > NOTES else []
    items = [tag("li", note) for note in notes[:NOTES] + more]
    return tag("section", tag("ul", *items), class_="note", aria_label="Notes")


def _rounds(played: int, planned: int | None) -> str:
    return f"{played:,} of {planned:,} rounds" if planned is not None else f"{played:,} rounds"
