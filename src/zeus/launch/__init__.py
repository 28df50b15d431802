"""Runs a job's recurrences: `recur` asks for the trials of one, and a launcher runs the command of each."""
