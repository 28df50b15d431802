"""Data drift (§6.4): a job on data that change from recurrence to recurrence."""

from zeus.simulate.drift.experiment import SIZES, run, shifts, tweets, valley

__all__ = ["SIZES", "run", "shifts", "tweets", "valley"]
