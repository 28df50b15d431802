"""The names that version 0.1 had here; they live in `zeus.jobs.local` now."""

from zeus.jobs.folds import Folds
from zeus.jobs.local import LocalJob

__all__ = ["Folds", "LocalJob"]
