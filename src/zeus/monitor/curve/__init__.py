"""Readings of one card -> its cumulative energy over time."""
