"""Curves over rounds, under the name by which simulations know them."""

from ccfed.records.plots import COLOURS, DASHES, LABELS, curves

__all__ = ["COLOURS", "DASHES", "LABELS", "curves"]
