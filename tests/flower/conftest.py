"""What the tests of the Flower room share."""

import os
from pathlib import Path

import pytest

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

from flwr.app import ArrayRecord
from small_app import CLIENTS, linear

from ccfed import data
from ccfed.data import Federation


@pytest.fixture(scope="session")
def federation() -> Federation:
    return data.load("digits").split(data.mixed(iid=0.0), clients=CLIENTS, seed=0)


@pytest.fixture
def first(federation: Federation) -> ArrayRecord:
    return ArrayRecord(linear(federation.data.sample_shape, 10).state_dict())


@pytest.fixture(autouse=True)
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the devices of a test keep their pasts."""
    folder = tmp_path / "devices"
    monkeypatch.setenv("CCFED_DEVICES", str(folder))
    return folder
