"""A table for browser sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision: str | None = "0004"


def upgrade() -> None:
    """Before, a browser kept the token itself."""
    op.create_table(
        "zeus_sessions",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("token_id", sa.Text, sa.ForeignKey("zeus_tokens.id"), nullable=False),
        sa.Column("until", sa.Text, nullable=False),
    )
