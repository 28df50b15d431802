"""Tables for jobs and their revisions, trials, other events and profiles."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    op.create_table(
        "zeus_jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("generation", sa.Text, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.Column("recurrences", sa.Integer, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
    )
    op.create_table(
        "zeus_revisions",
        sa.Column("job_id", sa.Text, sa.ForeignKey("zeus_jobs.id"), primary_key=True),
        sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("job", sa.Text, nullable=False),
    )
    op.create_table(
        "zeus_trials",
        sa.Column("job_id", sa.Text, sa.ForeignKey("zeus_jobs.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("recurrence", sa.Integer, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("asked_at", sa.Text, nullable=False),
        sa.Column("changed_at", sa.Text, nullable=False),
        sa.Column("leased_until", sa.Text),
        sa.Column("so_far", sa.Text),
        sa.Column("trial", sa.Text, nullable=False),
    )
    op.create_table(
        "zeus_events",
        sa.Column("job_id", sa.Text, sa.ForeignKey("zeus_jobs.id"), primary_key=True),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("event", sa.Text, nullable=False),
    )
    op.create_table(
        "zeus_profiles",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("batch_size", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("gpu_model", sa.Text, primary_key=True),
        sa.Column("gpu_count", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("profile", sa.Text, nullable=False),
    )
