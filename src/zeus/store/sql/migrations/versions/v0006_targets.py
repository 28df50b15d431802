"""Each trial stores its target, and each point in a job's history has a mark."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision: str | None = "0005"


def upgrade() -> None:
    """Before, a job stored from which trial on its current target counted."""
    op.create_table(
        "zeus_marks",
        sa.Column("job_id", sa.Text, sa.ForeignKey("zeus_jobs.id"), primary_key=True),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("mark", sa.Text, nullable=False),
    )
    op.add_column("zeus_jobs", sa.Column("mark", sa.Text, nullable=False, server_default=""))
    db = op.get_bind()
    find = sa.text("SELECT number, trial FROM zeus_trials WHERE job_id = :job_id")
    put = sa.text("UPDATE zeus_trials SET trial = :trial WHERE job_id = :job_id AND number = :number")
    for (job_id,) in db.execute(sa.text("SELECT id FROM zeus_jobs")).all():
        of = {"job_id": job_id}
        texts = db.execute(sa.text("SELECT job FROM zeus_revisions WHERE job_id = :job_id ORDER BY revision"), of).all()
        revisions = [json.loads(text) for (text,) in texts]
        rows = [
            {"job_id": job_id, "number": number, "trial": json.dumps(_with_target(json.loads(text), revisions))}
            for number, text in db.execute(find, of).all()
        ]
        if rows:
            db.execute(put, rows)


def _with_target(trial: dict, revisions: list[dict]) -> dict:  # type: ignore[type-arg]
    """The trial with the target of the last revision before it was asked for."""
    past = [one["spec"] for one in revisions if one.get("since", 0) < trial["asked"]]
    if trial["ask"].get("target") is not None or not past:
        return trial
    spec = past[-1]
    target = {"metric": spec["target_metric"], "higher_is_better": spec["higher_is_better_metric"]}
    return {**trial, "ask": {**trial["ask"], "target": target}}
