"""Runs a pure function over many tasks, in this process, in several, or on a Ray cluster. The answers are the same."""
