"""Runs a job's recurrences: `recur` makes the tries of one, and a launcher runs the command of each try."""
