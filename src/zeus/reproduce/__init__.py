"""Reproduces the figures of the paper, and compares its numbers with ours in a report."""
