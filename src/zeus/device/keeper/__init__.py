"""Lends GPU power limits and takes them back, whatever happens. The only code in Zeus that sets one.

A client takes a lease on its GPUs over a socket. When the connection ends, for whatever reason, the keeper puts back
the limit and the persistence mode it found.

    trainer ── Lease ── socket ── Connection ── Loan ── Gpu.set_limit
       (may be killed)            (a keeper: private, or the system's)
"""

from __future__ import annotations

from zeus.device.keeper.client import Lease, Observing, lend, status

__all__ = ["Lease", "Observing", "lend", "status"]
