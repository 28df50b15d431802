"""Measuring: energy windows, power and temperature timelines."""
