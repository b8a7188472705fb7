"""The same algorithm on real devices: a Flower strategy, a mod for the client app, and a template of a whole app."""

try:
    import flwr as _flwr  # noqa: F401
except ImportError:
    raise ImportError("ccfed.flower needs an extra: pip install 'ccfed[flower]'") from None

from ccfed.flower.device import customize
from ccfed.flower.exchange import Patience
from ccfed.flower.inprocess import InProcessGrid
from ccfed.flower.strategy import CCFedAvg

__all__ = ["CCFedAvg", "InProcessGrid", "Patience", "customize"]
