"""`load`: a data set by its name, or from the user's own .npz file."""

from dataclasses import replace
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from ccfed.data.dataset import Dataset
from ccfed.data.inputs import Inputs
from ccfed.data.own import from_npz

NAMES = ("digits",)

DIGITS = Inputs(scale=1 / 16, mean=(0.305,), std=(0.376,))


def load(name: str, data_dir: str | Path | None = None) -> Dataset:
    """The data set called `name`, or the one in the .npz file of this path (see `from_npz`)."""
    if name == "digits":
        with resources.as_file(resources.files("ccfed.data") / "embedded" / "digits.npz") as path:
            return replace(from_npz(path), inputs=DIGITS)
    if name.endswith(".npz"):
        return from_npz(name)
    near = get_close_matches(name, NAMES, n=1)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"--data {name!r} is unknown{hint}: choose {', '.join(NAMES)} or the path of an .npz file")
