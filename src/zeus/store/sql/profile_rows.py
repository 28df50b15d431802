"""Rows of power profiles, and of the GPUs that clients give only once."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from zeus.job import Gpus
from zeus.job.wire import from_json, loads, to_text
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.sql.database import Statement, Transaction
from zeus.store.sql.tables import PLACES, PROFILES

_OF: sa.BindParameter[str] = sa.bindparam("of")
_KEY = ("job", "batch_size", "gpu_model", "gpu_count")
ALL_PROFILES = Statement(sa.select(*(PROFILES.c[name] for name in (*_KEY, "profile"))))
FIND_PROFILE = Statement(
    sa.select(PROFILES.c.profile).where(*(PROFILES.c[name] == sa.bindparam(name) for name in _KEY))
)
PUT_PROFILE = Statement(
    sa.text(
        "INSERT INTO zeus_profiles (job, batch_size, gpu_model, gpu_count, profile)"
        " VALUES (:job, :batch_size, :gpu_model, :gpu_count, :profile)"
        " ON CONFLICT (job, batch_size, gpu_model, gpu_count) DO UPDATE SET profile = excluded.profile"
    )
)
PROFILES_OF = Statement(sa.select(*(PROFILES.c[name] for name in (*_KEY, "profile"))).where(PROFILES.c.job == _OF))
FIND_PLACE = Statement(
    sa.select(PLACES.c.gpu_model, PLACES.c.gpu_count, PLACES.c.max_watts).where(PLACES.c.job_id == _OF)
)
PUT_PLACE = Statement(
    sa.text(
        "INSERT INTO zeus_places (job_id, gpu_model, gpu_count, max_watts)"
        " VALUES (:job_id, :gpu_model, :gpu_count, :max_watts)"
        " ON CONFLICT (job_id) DO UPDATE SET gpu_model = excluded.gpu_model, gpu_count = excluded.gpu_count,"
        " max_watts = excluded.max_watts"
    )
)


def find_profile(db: Transaction, key: ProfileKey) -> PowerProfile | None:
    found = db.row(FIND_PROFILE, _key_row(key))
    return None if found is None else from_json(loads(found[0]), PowerProfile)


def all_profiles(db: Transaction) -> dict[ProfileKey, PowerProfile]:
    return {ProfileKey(*key): from_json(loads(text), PowerProfile) for *key, text in db.rows(ALL_PROFILES)}


def profiles_of(db: Transaction, job_id: str) -> dict[ProfileKey, PowerProfile]:
    found = db.rows(PROFILES_OF, {"of": job_id})
    return {ProfileKey(*key): from_json(loads(text), PowerProfile) for *key, text in found}


def put_place(db: Transaction, job_id: str, gpus: Gpus) -> None:
    """Store the GPUs of a client that gives them only once."""
    row = {"gpu_model": gpus.model, "gpu_count": gpus.count, "max_watts": gpus.max_watts}
    db.run(PUT_PLACE, {"job_id": job_id, **row})


def find_place(db: Transaction, job_id: str) -> Gpus | None:
    found = db.row(FIND_PLACE, {"of": job_id})
    return None if found is None else Gpus(str(found[0]), int(found[1]), float(found[2]))


def put_profile(db: Transaction, key: ProfileKey, profile: PowerProfile) -> None:
    db.run(PUT_PROFILE, {**_key_row(key), "profile": to_text(profile)})


def _key_row(key: ProfileKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in _KEY}
