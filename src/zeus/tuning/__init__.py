"""Hyperparameter search (§7): energy, cost and power limit of each trial of a tuner."""
