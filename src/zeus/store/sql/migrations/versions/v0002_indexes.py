"""Indexes for new events, lapsed leases and the trials of a recurrence, so that long histories stay fast."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    for column in ("sequence", "leased_until", "recurrence"):
        op.create_index(f"zeus_trials_by_{column}", "zeus_trials", ["job_id", column])
