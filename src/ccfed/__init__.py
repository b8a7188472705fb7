"""Federated learning in which every device pays only the compute it can afford."""
