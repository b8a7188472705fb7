"""Small federations that many tests share."""

import pytest

from ccfed import data
from ccfed.data import Federation


@pytest.fixture(scope="session")
def digits_of_8() -> Federation:
    """The digits, sorted by label, at eight clients."""
    return data.load("digits").split(data.mixed(iid=0.0), clients=8, seed=0)
