"""`/api/v1/jobs`: register, list, show, change and remove jobs."""

from __future__ import annotations

import contextlib
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from msgspec import UNSET, structs

from zeus.client.api import Excerpt
from zeus.client.bodies import Change, Excuse, Pardon, Register, Reset
from zeus.errors import NotKnown
from zeus.job import JobSpec, replace
from zeus.policy.registry import find_policy, named_policy
from zeus.service import schemas
from zeus.service.job_list import Wanted
from zeus.service.overview import sound
from zeus.service.routes.dependencies import (
    PAGE,
    READ,
    REPORT,
    JobId,
    Json,
    Life,
    Limit,
    Offset,
    Points,
    Revise,
    Search,
    WithCurves,
    answer,
    audit_page,
    jobs_of,
    overview_of,
    registered_job,
    store_of,
    v1_router,
)
from zeus.store.actor import current
from zeus.store.api import Job
from zeus.store.rules import may_give

routes = v1_router()

LIST_SECONDS = 0.2  # for which a request computes what its filters need
State = Literal["running", "failing", "losing", "ok", "new"]
Sort = Literal["name", "owner", "gpu", "state", "last", "trials", "joules", "saving", "failures"]


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
    job = store.register(spec, policy_version=version, void=revise)
    jobs_of(request).changed(job.id)
    return registered_job(job)


@routes.get("/jobs", dependencies=[READ], response_model=Json)
def jobs(
    request: Request,
    offset: Offset = 0,
    limit: Limit = PAGE,
    q: Search = "",
    owner: Annotated[str | None, Query(max_length=401, description="Only its jobs; empty: those of nobody.")] = None,
    gpu: Annotated[str | None, Query(max_length=400, description="Only jobs that ran last on these GPUs.")] = None,
    state: Annotated[State | None, Query(description="Only jobs that stand like this.")] = None,
    sort: Annotated[Sort, Query(description="What they are sorted by. Jobs that lack it come last.")] = "name",
    desc: Annotated[bool, Query(description="From the largest to the smallest.")] = False,
) -> Response:
    """List jobs, one page at a time. With `q`: only jobs whose id contains it.

    `owners` and `gpus` are all that jobs of this store have. `uncounted`: jobs that could not be read in time for this
    answer, and are missing in it unless the list is of names alone. A later answer has them.
    """
    store, overview = store_of(request), overview_of(request)
    wanted = Wanted(q=q, owner=owner, gpu=gpu, state=state, sort=sort, desc=desc)
    found = overview.lately(LIST_SECONDS) if wanted.is_plain else overview.totals(LIST_SECONDS)
    listed = found.listed
    if wanted.is_plain:
        total, names = store.names(q, after=offset, most=limit)
    else:
        every = wanted.of(listed)
        total, names = len(every), every[offset : offset + limit]
    page = {
        "total": total,
        "offset": offset,
        "jobs": overview.briefs(names),
        "owners": sorted({one.owner for one in listed}),
        "gpus": sorted({one.gpu for one in listed if one.gpu is not None}),
        "uncounted": found.uncounted,
    }
    return answer(page)


@routes.get("/jobs/{job_id}", dependencies=[READ], response_model=Json)
def show(
    request: Request,
    job_id: JobId,
    tries: Annotated[int | None, Query(ge=0, le=2**53, description="Only the newest so many trials.")] = None,
    history: Annotated[int | None, Query(ge=0, le=2**53, description="Only the newest so many recurrences.")] = None,
    curves: WithCurves = True,
    points: Points = None,
) -> Response:
    """Everything about one job: trials, recurrences, beliefs, default and saving."""
    return answer(_full(request, job_id, Excerpt(tries, history, curves, points)))


def _full(request: Request, job_id: str, excerpt: Excerpt) -> Json:
    return sound(job_id, lambda: jobs_of(request).full(job_id, excerpt))


@routes.get("/jobs/{job_id}/registration", dependencies=[READ])
def registration(request: Request, job_id: JobId) -> Json:
    """The job as registered, in the wire format."""
    return registered_job(store_of(request).job(job_id))


@routes.patch("/jobs/{job_id}", dependencies=[REPORT], openapi_extra=schemas.takes(Change))
def change(
    request: Request, job_id: JobId, body: Annotated[Change, schemas.body(Change)], revise: Revise = False
) -> Json:
    """Revise a job. A field that is left out or null keeps its value.

    With `paused`: pause it or resume it. With `owner`, for administrators: say whose it is.
    """
    given = {name: value for name, value in structs.asdict(body).items() if value not in (None, UNSET)}
    store, paused, owner = store_of(request), given.pop("paused", None), given.pop("owner", None)
    job = store.job(job_id)

    def changed(job: Job) -> tuple[JobSpec, int]:
        spec = replace(job.spec, **given)
        known = spec.policy == job.spec.policy
        return spec, (find_policy if known else named_policy)(spec.policy).version

    if owner is not None:
        may_give(current(), job_id)  # before anything is changed
    if given or (paused is None and owner is None):
        job = store.revise(job_id, changed, void=revise)
    if paused is not None:
        job = store.pause(job_id, paused=paused)
    if owner is not None:
        job = store.own(job_id, owner)
    jobs_of(request).changed(job_id)
    return registered_job(job)


@routes.delete("/jobs/{job_id}", dependencies=[REPORT], status_code=204, response_model=None)
def forget(request: Request, job_id: JobId) -> None:
    """Remove a job with all its trials and power profiles. For its owner and administrators."""
    store_of(request).forget(job_id)


@routes.post("/jobs/{job_id}/reset", dependencies=[REPORT], openapi_extra=schemas.takes(Reset))
def reset(request: Request, job_id: JobId, body: Annotated[Reset, schemas.body(Reset)]) -> Json:
    """Forget a job's trials and profiles. It stays registered, with the newest version of its policy.

    For its owner and administrators. With `pulse`: only if the job has not changed since that pulse was read.
    """
    store = store_of(request)
    version = find_policy(store.job(job_id).spec.policy).version
    return registered_job(store.restart(job_id, policy_version=version, pulse=body.pulse))


@routes.get("/jobs/{job_id}/audit", dependencies=[READ])
def audit(request: Request, job_id: JobId, offset: Offset = 0, limit: Limit = PAGE) -> Json:
    """Who changed the job, newest first: also in its lives before it was reset or removed."""
    return audit_page(request, job_id, offset, limit)


@routes.get("/jobs/{job_id}/beliefs", dependencies=[READ])
def beliefs(request: Request, job_id: JobId) -> Json:
    """What the policy believes about each batch size, on the GPUs the job last ran on."""
    told = _full(request, job_id, Excerpt(0, 0))
    return {name: told[name] for name in ("job", "policy", "phase", "gpu_model", "next", "stuck", "sizes")}


@routes.post("/jobs/{job_id}/excuse", dependencies=[REPORT], openapi_extra=schemas.takes(Excuse))
def excuse(request: Request, job_id: JobId, body: Annotated[Excuse, schemas.body(Excuse)], life: Life = "") -> Json:
    """The script itself crashed these trials. Those that finished no epoch no longer count against their batch size."""
    jobs_of(request).excuse(job_id, body.trials, generation=life)
    return registered_job(store_of(request).job(job_id))


@routes.post("/jobs/{job_id}/pardon", dependencies=[REPORT], openapi_extra=schemas.takes(Pardon))
def pardon(request: Request, job_id: JobId, body: Annotated[Pardon, schemas.body(Pardon)]) -> Json:
    """Offer a batch size again that has crashed. For the job's owner and administrators."""
    jobs_of(request).pardon(job_id, body.batch_size)
    return {"batch_size": body.batch_size}
