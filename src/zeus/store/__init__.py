"""The store of jobs, trials and power profiles. `zeus.store.api` says what every store promises."""

from __future__ import annotations

from zeus.job import TrialRecord
from zeus.store.address import open_store
from zeus.store.api import LEASE_SECONDS, Job, Request, Store
from zeus.store.memory import MemoryStore

__all__ = ["LEASE_SECONDS", "Job", "MemoryStore", "Request", "Store", "TrialRecord", "open_store"]
