"""Every command and every block of Python in README and docs is run, in the order of the page, in an empty folder."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(
    r"^(?P<skip><!-- not run: (?P<reason>[^\n]+) -->\n+)?```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
RUN = ("python", "sh", "console")
SHOWN = ("ini", "text", "toml")


@dataclass(frozen=True)
class Block:
    """A block of code, the line of the page on which it begins, and why it is not run, if it is not."""

    page: Path
    line: int
    language: str
    code: str
    not_run: str | None


class Log:
    """What the page about observers does to a run of Weights & Biases."""

    def __init__(self, *, project: str, group: str, name: str, config: dict[str, object], reinit: str) -> None:
        assert "rounds" in config
        self.steps: list[int] = []
        self.finished = False

    def log(self, values: dict[str, float], step: int) -> None:
        assert "accuracy" in values
        self.steps.append(step)

    def finish(self) -> None:
        self.finished = True


def blocks_of(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("code")) + 1
        yield Block(page, line, found["language"], found["code"], found["reason"])


def run_shell(block: Block, folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (
        f"{block.page.name}:{block.line} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    logs: list[Log] = []
    wandb = SimpleNamespace(init=lambda **given: logs.append(Log(**given)) or logs[-1])
    monkeypatch.setitem(sys.modules, "wandb", wandb)  # the real one would want an account
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.language not in RUN or block.not_run:
            continue
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
        else:
            run_shell(block, tmp_path)
    assert all(log.steps == list(range(1, 11)) and log.finished for log in logs)
    assert len(logs) == (2 if page.name == "report.md" else 0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_is_overlooked(page: Path) -> None:
    blocks = list(blocks_of(page))
    fences = re.findall(r"^\s*(?:```|~~~)", page.read_text(), re.MULTILINE)
    assert len(fences) == 2 * len(blocks), f"{page.name} has a block without a language, or an indented one"
    assert {block.language for block in blocks} <= {*RUN, *SHOWN}
    for block in blocks:
        for test in re.findall(r"\S+\.py", block.not_run or ""):
            assert (ROOT / test).exists(), f"{page.name}:{block.line} is run by {test}, which does not exist"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    for page in PAGES:
        if page.parent.name == "docs" and page.name != "index.md":
            assert f"({page.name})" in index, f"docs/index.md does not name {page.name}"
