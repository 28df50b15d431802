"""A table for a digest of each job, so that lists of jobs need not read all trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision: str | None = "0006"


def upgrade() -> None:
    op.create_table(
        "zeus_digests",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("stamp", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
    )
