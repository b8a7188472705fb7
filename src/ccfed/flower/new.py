"""Writes a complete, small Flower app that trains with CC-FedAvg."""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

PACKAGE = "digits_app"
"""The name of the app's package in the template; a new app's is made of its folder's name."""

SUFFIX = ".template"
"""What the template's files have at the end of their names, so that no tool takes them for code of ccfed."""


def new_app(folder: Path, clients: int = 4) -> str:
    """Writes the app into `folder`, which must be empty or not exist; returns the name of its package."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"DIR is {str(folder)!r}, which is not empty: choose another folder")
    if clients < 1:
        raise ValueError(f"--clients is {clients}, but it must be at least 1")
    folder = folder.resolve()
    name = re.sub(r"[^a-z0-9]+", "-", folder.name.lower()).strip("-")
    if not re.match(r"[a-z]", name):
        name = f"app-{name}".strip("-")
    # The app's package must not hide one that it needs itself.
    package = name.replace("-", "_") + ("" if name.endswith("app") else "_app")
    words = {
        PACKAGE: package,
        "{name}": name,
        "{publisher}": "me",
        "{clients}": str(clients),
        "{folder}": (folder / "runs" / "first").as_posix(),
    }
    template = files("ccfed.flower") / "template"
    for path, text in sorted(_texts(template, "")):
        for word, replacement in words.items():
            path, text = path.replace(word, replacement), text.replace(word, replacement)
        target = folder / path.removesuffix(SUFFIX)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return package


def _texts(folder: Traversable, path: str) -> list[tuple[str, str]]:
    """The files below `folder`: their paths and texts."""
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _texts(entry, f"{path}{entry.name}/")
        else:
            found.append((f"{path}{entry.name}", entry.read_text()))
    return found
