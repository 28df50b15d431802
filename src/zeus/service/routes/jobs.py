"""`/api/v1/jobs`: register, list, show, change and remove jobs."""

from __future__ import annotations

import contextlib
from typing import Annotated

from fastapi import Request, Response
from msgspec import UNSET, structs

from zeus.client.bodies import Change, Excuse, Pardon, Register, Reset
from zeus.errors import NotKnown
from zeus.job import JobSpec, replace
from zeus.policy.registry import find_policy, named_policy
from zeus.service import schemas
from zeus.service.overview import sound
from zeus.service.routes.dependencies import (
    ADMIN,
    PAGE,
    READ,
    REPORT,
    JobId,
    Json,
    Life,
    Limit,
    Offset,
    Revise,
    Search,
    jobs_of,
    overview_of,
    registered_job,
    store_of,
    v1_router,
)
from zeus.store.api import Job

routes = v1_router()


@routes.post(
    "/jobs",
    dependencies=[REPORT],
    status_code=201,
    responses={200: {"description": "The job was there already; it was revised if it differed."}},
    openapi_extra=schemas.takes(Register),
)
def register(
    request: Request, response: Response, body: Annotated[Register, schemas.body(Register)], revise: Revise = False
) -> Json:
    """Register a job (201). A job that is there already is revised if it differs (200)."""
    store, spec = store_of(request), body.spec
    version = named_policy(spec.policy).version
    with contextlib.suppress(NotKnown):
        store.job(spec.id)
        response.status_code = 200
    return registered_job(store.register(spec, policy_version=version, void=revise))


@routes.get("/jobs", dependencies=[READ])
def jobs(request: Request, offset: Offset = 0, limit: Limit = PAGE, q: Search = "") -> Json:
    """List jobs by id, one page at a time. With `q`: only jobs whose id contains it."""
    store = store_of(request)
    total, names = store.names(q, after=offset, most=limit)
    found = store.pulse(names)
    rows = overview_of(request).briefs({name: found[name] for name in names if name in found})
    return {"total": total, "offset": offset, "jobs": rows}


@routes.get("/jobs/{job_id}", dependencies=[READ])
def show(request: Request, job_id: JobId) -> Json:
    """Everything about one job: trials, recurrences, beliefs, default and saving."""
    return sound(job_id, lambda: jobs_of(request).full(job_id))


@routes.get("/jobs/{job_id}/registration", dependencies=[READ])
def registration(request: Request, job_id: JobId) -> Json:
    """The job as registered, in the wire format."""
    return registered_job(store_of(request).job(job_id))


@routes.patch("/jobs/{job_id}", dependencies=[REPORT], openapi_extra=schemas.takes(Change))
def change(
    request: Request, job_id: JobId, body: Annotated[Change, schemas.body(Change)], revise: Revise = False
) -> Json:
    """Revise a job. A field that is left out or null keeps its value."""
    given = {name: value for name, value in structs.asdict(body).items() if value not in (None, UNSET)}

    def changed(job: Job) -> tuple[JobSpec, int]:
        spec = replace(job.spec, **given)
        known = spec.policy == job.spec.policy
        return spec, (find_policy if known else named_policy)(spec.policy).version

    return registered_job(store_of(request).revise(job_id, changed, void=revise))


@routes.delete("/jobs/{job_id}", dependencies=[ADMIN], status_code=204, response_model=None)
def forget(request: Request, job_id: JobId) -> None:
    """Remove a job with all its trials and power profiles."""
    store_of(request).forget(job_id)


@routes.post("/jobs/{job_id}/reset", dependencies=[ADMIN], openapi_extra=schemas.takes(Reset))
def reset(request: Request, job_id: JobId, body: Annotated[Reset, schemas.body(Reset)]) -> Json:
    """Forget a job's trials and profiles. It stays registered, with the newest version of its policy.

    With `pulse`: only if the job has not changed since that pulse was read.
    """
    store = store_of(request)
    version = find_policy(store.job(job_id).spec.policy).version
    return registered_job(store.restart(job_id, policy_version=version, pulse=body.pulse))


@routes.get("/jobs/{job_id}/beliefs", dependencies=[READ])
def beliefs(request: Request, job_id: JobId) -> Json:
    """What the policy believes about each batch size, on the GPUs the job last ran on."""
    told = show(request, job_id)
    return {name: told[name] for name in ("job", "policy", "phase", "gpu_model", "next", "stuck", "sizes")}


@routes.post("/jobs/{job_id}/excuse", dependencies=[REPORT], openapi_extra=schemas.takes(Excuse))
def excuse(request: Request, job_id: JobId, body: Annotated[Excuse, schemas.body(Excuse)], life: Life = "") -> Json:
    """The script itself crashed these trials. Those that finished no epoch no longer count against their batch size."""
    return registered_job(store_of(request).excuse(job_id, body.trials, life=life))


@routes.post("/jobs/{job_id}/pardon", dependencies=[ADMIN], openapi_extra=schemas.takes(Pardon))
def pardon(request: Request, job_id: JobId, body: Annotated[Pardon, schemas.body(Pardon)]) -> Json:
    """Offer a batch size again that has crashed."""
    store_of(request).pardon(job_id, body.batch_size)
    return {"batch_size": body.batch_size}
