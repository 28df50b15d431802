"""Rows of power profiles, and of GPUs that a client gives only once."""

from __future__ import annotations

from typing import Any

from zeus.job import Gpus
from zeus.job.wire import from_json, loads, to_text
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.sql.database import Transaction
from zeus.store.sql.rows import insert

_KEY = ("job", "batch_size", "gpu_model", "gpu_count")
_PROFILES = f"SELECT {', '.join(_KEY)}, profile FROM zeus_profiles"


def find_profile(db: Transaction, key: ProfileKey) -> PowerProfile | None:
    only = " AND ".join(f"{name} = :{name}" for name in _KEY)
    found = db.row(f"SELECT profile FROM zeus_profiles WHERE {only}", **_key_row(key))
    return None if found is None else from_json(loads(found[0]), PowerProfile)


def profiles_of(db: Transaction, job_id: str | None = None) -> dict[ProfileKey, PowerProfile]:
    """All profiles of a job, or of all jobs."""
    found = db.rows(_PROFILES) if job_id is None else db.rows(f"{_PROFILES} WHERE job = :job_id", job_id=job_id)
    return {ProfileKey(*key): from_json(loads(text), PowerProfile) for *key, text in found}


def put_profile(db: Transaction, key: ProfileKey, profile: PowerProfile) -> None:
    put = f"ON CONFLICT ({', '.join(_KEY)}) DO UPDATE SET profile = excluded.profile"
    db.run(f"{insert('zeus_profiles', (*_KEY, 'profile'))} {put}", **_key_row(key), profile=to_text(profile))


def _key_row(key: ProfileKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in _KEY}


def put_place(db: Transaction, job_id: str, gpus: Gpus) -> None:
    """Store the GPUs of a client that gives them only once."""
    columns = ("gpu_model", "gpu_count", "max_watts")
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    put = f"{insert('zeus_places', ('job_id', *columns))} ON CONFLICT (job_id) DO UPDATE SET {changes}"
    db.run(put, job_id=job_id, gpu_model=gpus.model, gpu_count=gpus.count, max_watts=gpus.max_watts)


def find_place(db: Transaction, job_id: str) -> Gpus | None:
    found = db.row("SELECT gpu_model, gpu_count, max_watts FROM zeus_places WHERE job_id = :job_id", job_id=job_id)
    return None if found is None else Gpus(str(found[0]), int(found[1]), float(found[2]))
