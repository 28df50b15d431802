"""Data drift (§6.4): a job whose data change from recurrence to recurrence."""

from zeus.simulate.drift.experiment import DEFAULT, SIZES, run, shifts, tweets, valley

__all__ = ["DEFAULT", "SIZES", "run", "shifts", "tweets", "valley"]
