"""A module that cannot be imported."""

PLACE = {"away": "far"}["home"]
