"""Jobs, trials and power profiles, kept: the promises are in `zeus.store.api`."""

from __future__ import annotations

from zeus.job import Kept
from zeus.store.address import open_store
from zeus.store.api import LEASE_SECONDS, Job, Request, Store
from zeus.store.memory import MemoryStore

__all__ = ["LEASE_SECONDS", "Job", "Kept", "MemoryStore", "Request", "Store", "open_store"]
