"""Tables for a service: tokens, GPUs that clients give only once, and keys of asks that may be repeated."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"


def upgrade() -> None:
    op.create_table(
        "zeus_tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("revoked_at", sa.Text),
    )
    op.create_table(
        "zeus_places",
        sa.Column("job_id", sa.Text, sa.ForeignKey("zeus_jobs.id"), primary_key=True),
        sa.Column("gpu_model", sa.Text, nullable=False),
        sa.Column("max_watts", sa.Float, nullable=False),
    )
    op.create_table(
        "zeus_asks",
        sa.Column("job_id", sa.Text, sa.ForeignKey("zeus_jobs.id"), primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
    )
