"""Lends GPU power limits and restores them, whatever happens. No other code in Zeus sets a power limit.

A client takes a lease on its GPUs over a socket. When the connection ends, for whatever reason, the keeper restores
the power limit and the persistence mode that it found.

    trainer ── Lease ── socket ── Connection ── Loan ── Gpu.set_limit
       (may be killed)            (a private keeper, or the system's)
"""

from __future__ import annotations

from zeus.device.keeper.lease import Lease, Observing, lend, permitted, status

__all__ = ["Lease", "Observing", "lend", "permitted", "status"]
