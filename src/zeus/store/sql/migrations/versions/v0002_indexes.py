"""New events, lapsed leases and the tries of a recurrence are found at the same cost however long the history."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    """From version 1."""
    for column in ("sequence", "leased_until", "recurrence"):
        op.create_index(f"zeus_trials_by_{column}", "zeus_trials", ["job_id", column])
