"""The plan of the house: each room has one purpose, and dependencies point downwards only."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ccfed

ROOT = Path(ccfed.__file__).parent
NOWHERE: set[str] = set()
MAY_USE: dict[str, set[str]] = {
    "algorithm": NOWHERE,
    "files": NOWHERE,
    "data": {"algorithm", "files"},
    "models": {"algorithm"},
    "training": {"algorithm", "data", "models"},
    "records": {"algorithm", "files"},
    "simulation": {"algorithm", "files", "data", "models", "training", "records"},
    "flower": {"algorithm", "files", "records"},
    "bench": {"algorithm", "data", "models", "training", "records", "simulation"},
    "report": {"algorithm", "files", "data", "records", "simulation"},
    "paper": {"algorithm", "files", "data", "models", "training", "records", "simulation"},
}
MAY_USE["cli"] = set(MAY_USE)
MODULES = sorted(path for path in ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0] if path.parent != ROOT else ""


def used_by(path: Path) -> Iterator[str]:
    """The rooms that a module imports from, wherever in it the import stands (but not those only for type checkers)."""
    tree = ast.parse(path.read_text())
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            names = [node.module or ""]
            if node.module == "ccfed":
                names = [f"ccfed.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "ccfed" and len(parts) > 1 and (ROOT / parts[1]).is_dir():
                yield parts[1]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_downwards(path: Path) -> None:
    room = room_of(path)
    if room:
        assert set(used_by(path)) - {room} <= MAY_USE[room]


def test_every_room_is_in_the_plan_and_says_its_purpose() -> None:
    rooms = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert rooms == MAY_USE.keys()
    for room in rooms:
        first = ast.get_docstring(ast.parse((ROOT / room / "__init__.py").read_text()))
        assert first
        assert len(first.splitlines()[0]) > 30, room


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_short_and_explained(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    assert "utils" not in path.name
    tree = ast.parse(text)
    assert ast.get_docstring(tree), f"{path} does not say what it is for"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            # Triton's kernels are compiled from their source, which a docstring would be part of.
            if any("jit" in ast.unparse(decorator) for decorator in node.decorator_list):
                continue
            assert ast.get_docstring(node), f"{path.name}: {node.name} has no docstring"


def public_modules() -> list[str]:
    found = ["ccfed"]
    for info in pkgutil.iter_modules(ccfed.__path__, "ccfed."):
        if info.ispkg and info.name.rpartition(".")[2] in MAY_USE:
            found.append(info.name)
    return found


@pytest.mark.parametrize("name", public_modules())
def test_a_room_names_what_it_gives(name: str) -> None:
    if name == "ccfed.flower":
        pytest.importorskip("flwr")
    module = importlib.import_module(name)
    if name == "ccfed.cli":
        assert module.__all__ == ["main"]
        return
    assert len(set(module.__all__)) == len(module.__all__)
    for each in module.__all__:
        thing = getattr(module, each)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            assert inspect.getdoc(thing), f"{name}.{each} has no docstring"


def test_the_package_is_typed_and_knows_its_version() -> None:
    from importlib.metadata import version

    assert (ROOT / "py.typed").exists()
    assert ccfed.__version__ == version("ccfed")


def test_the_command_line_answers_before_torch_is_loaded() -> None:
    asked = "import sys, ccfed.cli; code = ccfed.cli.main(['--help']); sys.exit(code or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], stdout=subprocess.DEVNULL).returncode == 0


def test_a_name_that_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'ccfed' has no attribute 'simulat'"):
        ccfed.simulat  # noqa: B018
