"""Jobs, trials and power profiles, kept: the promises are in `zeus.store.api`."""

from __future__ import annotations

from zeus.job import Kept
from zeus.store.api import LEASE_SECONDS, Job, Request, Store
from zeus.store.memory import MemoryStore
from zeus.store.open import open_store

__all__ = ["LEASE_SECONDS", "Job", "Kept", "MemoryStore", "Request", "Store", "open_store"]
