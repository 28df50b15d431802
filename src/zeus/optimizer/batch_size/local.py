"""Aliases: version 0.1 had these names here. They are in `zeus.jobs` now."""

from zeus.jobs.folds import Folds
from zeus.jobs.local import LocalJob

__all__ = ["Folds", "LocalJob"]
