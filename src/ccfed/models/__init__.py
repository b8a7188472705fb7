"""The paper's models, and any nn.Module of the user's, as functions of one flat parameter vector."""

from ccfed.models.cnn import cnn
from ccfed.models.mlp import mlp
from ccfed.models.network import MODELS, Maker, Network, find_model
from ccfed.models.resnet import resnet18

__all__ = ["MODELS", "Maker", "Network", "cnn", "find_model", "mlp", "resnet18"]
