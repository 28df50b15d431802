"""The tables of Zeus 0.3, the first version whose stores every later one reads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    def of_job() -> sa.Column[str]:
        return sa.Column("job_id", sa.Text, sa.ForeignKey("zeus_jobs.id"), primary_key=True)

    op.create_table(
        "zeus_jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("generation", sa.Text, nullable=False),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("trials", sa.Integer, nullable=False),
        sa.Column("recurrences", sa.Integer, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("mark", sa.Text, nullable=False, server_default=""),
    )
    op.create_table(
        "zeus_revisions",
        of_job(),
        sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("job", sa.Text, nullable=False),
    )
    op.create_table(
        "zeus_trials",
        of_job(),
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
        of_job(),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("event", sa.Text, nullable=False),
    )
    op.create_table(
        "zeus_marks",
        of_job(),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("mark", sa.Text, nullable=False),
    )
    op.create_table(
        "zeus_asks",
        of_job(),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, nullable=False),
    )
    op.create_table(
        "zeus_places",
        of_job(),
        sa.Column("gpu_model", sa.Text, nullable=False),
        sa.Column("max_watts", sa.Float, nullable=False),
        sa.Column("gpu_count", sa.Integer, nullable=False),
    )
    op.create_table(
        "zeus_digests",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("stamp", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
    )
    op.create_table(
        "zeus_numbers",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("trials", sa.Integer, nullable=False),
    )
    op.create_table(
        "zeus_profiles",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("batch_size", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("gpu_model", sa.Text, primary_key=True),
        sa.Column("gpu_count", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("profile", sa.Text, nullable=False),
    )
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
        "zeus_sessions",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("token_id", sa.Text, sa.ForeignKey("zeus_tokens.id"), nullable=False),
        sa.Column("until", sa.Text, nullable=False),
    )
    for column in ("sequence", "leased_until", "recurrence"):  # new events, lapsed leases, trials of a recurrence
        op.create_index(f"zeus_trials_by_{column}", "zeus_trials", ["job_id", column])
