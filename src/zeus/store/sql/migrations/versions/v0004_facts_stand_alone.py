"""Each trial stores its own eta and GPUs, and no trial number is used twice."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision: str | None = "0003"


def upgrade() -> None:
    """Before, a trial had only a label of its GPUs, and its job stored which eta applied when."""
    op.create_table(
        "zeus_numbers",
        sa.Column("job_id", sa.Text, primary_key=True),
        sa.Column("trials", sa.Integer, nullable=False),
    )
    op.add_column("zeus_places", sa.Column("gpu_count", sa.Integer, nullable=False, server_default="1"))
    db = op.get_bind()
    for job_id, label in db.execute(sa.text("SELECT job_id, gpu_model FROM zeus_places")).all():
        model, count = _gpus(label)
        put = sa.text("UPDATE zeus_places SET gpu_model = :model, gpu_count = :count WHERE job_id = :job_id")
        db.execute(put, {"model": model, "count": count, "job_id": job_id})
    put = sa.text("UPDATE zeus_trials SET trial = :trial WHERE job_id = :job_id AND number = :number")
    for job_id, text in db.execute(sa.text("SELECT id, job FROM zeus_jobs")).all():
        job = json.loads(text)
        find = sa.text("SELECT number, trial FROM zeus_trials WHERE job_id = :job_id")
        rows = [
            {"job_id": job_id, "number": number, "trial": json.dumps(_version_2(json.loads(trial), job))}
            for number, trial in db.execute(find, {"job_id": job_id}).all()
        ]
        if rows:
            db.execute(put, rows)


def _gpus(label: str) -> tuple[str, int]:
    count, times, model = label.partition(" x ")
    return (model, int(count)) if times and count.isdecimal() else (label, 1)


def _version_2(trial: dict, job: dict) -> dict:  # type: ignore[type-arg]
    if trial.get("version") != 1:
        return trial
    ask = trial["ask"]
    until = [eta for last, eta in job.get("etas") or () if trial["asked"] <= last]
    eta = until[0] if until else job["spec"]["eta_knob"]
    model, count = _gpus(ask.pop("gpu_model", ""))
    gpus = {"model": model, "count": count, "max_watts": ask.pop("max_watts")}
    return {**trial, "version": 2, "ask": {**ask, "gpus": gpus, "eta": eta}}
