"""`/api/v1/jobs/{job}/profiles`: power profiles, and what an epoch of a batch size uses."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query, Request

from zeus.client.api import EpochUsed
from zeus.client.bodies import EpochBody
from zeus.client.report import profiles_json
from zeus.errors import NotKnown
from zeus.job.wire import to_json
from zeus.profile import ProfileFile, ProfileKey
from zeus.service import schemas
from zeus.service.overview import sound
from zeus.service.routes.dependencies import READ, REPORT, JobId, Json, Life, jobs_of, store_of, v1_router

routes = v1_router()


def _key(
    job_id: JobId,
    batch_size: Annotated[int, Query(ge=1, le=2**31 - 1)],
    gpu_model: Annotated[schemas.Text, Query()],
    gpu_count: Annotated[int, Query(ge=1, le=100_000)],
) -> ProfileKey:
    return ProfileKey(job_id, batch_size, gpu_model, gpu_count)


OfKey = Annotated[ProfileKey, Depends(_key)]


@routes.get("/jobs/{job_id}/profiles", dependencies=[READ])
def profile(request: Request, key: OfKey) -> Json:
    """The power profile of this job, batch size, GPU model and GPU count."""
    found = store_of(request).get_profile(key)
    if found is None:
        raise NotKnown(f"there is no power profile for {key}.")
    return to_json(found)


@routes.put("/jobs/{job_id}/profiles", dependencies=[REPORT], openapi_extra=schemas.takes(ProfileFile))
def put_profile(request: Request, key: OfKey, body: Annotated[ProfileFile, schemas.body(ProfileFile)]) -> Json:
    """Store a power profile in place of the one with the same key."""
    found = body.profile
    store_of(request).put_profile(key, found)
    return to_json(found)


@routes.get("/jobs/{job_id}/profiles/all", dependencies=[READ])
def profiles(request: Request, job_id: JobId) -> list[Json]:
    """All power profiles of a job, each with the best limit (Equation 7) at the job's η."""
    return sound(job_id, lambda: profiles_json(store_of(request), job_id))


@routes.post("/jobs/{job_id}/profiled", dependencies=[REPORT], status_code=201, openapi_extra=schemas.takes(EpochBody))
def profiled(
    request: Request, job_id: JobId, body: Annotated[EpochBody, schemas.body(EpochBody)], life: Life = ""
) -> Json:
    """Tell what one epoch with a batch size uses."""
    gpus = body.place
    jobs_of(request).profiled(EpochUsed(job_id, body.batch_size, gpus, body.joules, body.seconds, life))
    return {"batch_size": body.batch_size, "gpu_model": gpus.label}
