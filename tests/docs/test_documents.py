"""Every command and every block of Python in README and docs is run, in the order of the page, in an empty folder."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(
    r"^(?P<skip><!-- not run: (?P<reason>[^\n]+) -->\n+)?```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
RUN = ("python", "sh", "console")


@dataclass(frozen=True)
class Block:
    """A block of code, the line of the page on which it begins, and why it is not run, if it is not."""

    page: Path
    line: int
    language: str
    code: str
    not_run: str | None


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
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.language not in RUN or block.not_run:
            continue
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), names)
        else:
            run_shell(block, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http:", "https:", "mailto:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    for page in PAGES:
        if page.parent.name == "docs" and page.name != "index.md":
            assert f"({page.name})" in index, f"docs/index.md does not name {page.name}"
