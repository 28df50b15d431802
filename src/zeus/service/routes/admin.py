"""What `/api/v1` says about the store as a whole: its pulse and totals, export and import, and whose token this is."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from zeus.errors import InputError
from zeus.service import schemas
from zeus.service.auth import who
from zeus.service.person import Rejected
from zeus.service.routes.dependencies import (
    ADMIN,
    NDJSON,
    PAGE,
    READ,
    Json,
    Limit,
    Offset,
    Search,
    audit_page,
    jobs_of,
    overview_of,
    store_of,
    v1_router,
)

LINES: Json = {"requestBody": {"content": {NDJSON: {"schema": {"type": "string"}}}, "required": True}}

routes = v1_router()


@routes.get("/pulse", dependencies=[READ])
def pulse(
    request: Request,
    job: Annotated[list[schemas.Name] | None, Query(max_length=1000)] = None,
    offset: Offset = 0,
    limit: Limit | None = None,
    q: Search = "",
) -> dict[str, str]:
    """A stamp for each job that changes whenever the job does. The page asks for this first.

    With `job`: only for these jobs. With `limit`: only for the jobs that a list with the same `offset` and `q` shows.
    """
    store = store_of(request)
    if job is None and limit is not None:
        job = store.names(q, after=offset, most=limit).page
    return store.pulse(job)


@routes.get("/summary", dependencies=[READ])
def summary(request: Request) -> Json:
    """What all jobs together have used and saved."""
    return overview_of(request).summary()


@routes.get("/fleet", dependencies=[READ])
def fleet(
    request: Request,
    weeks: Annotated[int, Query(ge=1, le=520)] = 12,
    last: Annotated[str, Query(pattern=r"^(\d{4}-W\d{2})?$", description="The last week, as 2026-W47.")] = "",
) -> Json:
    """What all jobs used and saved by week, owner and GPU model, and the jobs that lose, fail or did not run."""
    return overview_of(request).fleet(weeks, last)


@routes.get("/export", dependencies=[READ], responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}})
def export(request: Request, job: Annotated[list[schemas.Name] | None, Query()] = None) -> Response:
    """All facts of these jobs, or of all jobs, as JSON lines."""
    lines = store_of(request).export(job)
    return Response("".join(f"{line}\n" for line in lines), media_type=NDJSON)


@routes.post("/import", dependencies=[ADMIN], openapi_extra=LINES)
async def take_in(request: Request) -> JSONResponse:
    """Import what `export` wrote: every job or, after an error, none."""
    try:
        lines = [line for line in (await request.body()).decode().split("\n") if line]
    except UnicodeDecodeError as wrong:
        raise InputError(f"the body is not UTF-8 text: {wrong}. Send what `export` wrote.") from wrong
    return JSONResponse({"jobs": await run_in_threadpool(jobs_of(request).import_lines, lines)})


@routes.get("/me")
def me(request: Request) -> Json:
    """Who sends this request, and what they may do. All is null if nobody is known by what it carries."""
    person = who(request)
    if isinstance(person, Rejected):
        return dict.fromkeys(("name", "scope", "team", "owner_of_new_jobs", "by"))
    return {
        "name": person.name,
        "scope": person.scope.value,
        "team": person.team,
        "owner_of_new_jobs": person.owner,
        "by": person.by,
    }


@routes.get("/tokens", dependencies=[ADMIN])
def tokens(request: Request) -> list[Json]:
    """All tokens, without their secrets."""
    names = ("id", "name", "team", "scope", "created_at", "expires_at", "used_at", "revoked_at")
    return [{name: getattr(one, name) for name in names} for one in store_of(request).tokens.all()]


@routes.get("/audit", dependencies=[ADMIN])
def audit(request: Request, offset: Offset = 0, limit: Limit = PAGE) -> Json:
    """Who changed or removed which job, newest first. Jobs that were removed are in it too."""
    return audit_page(request, None, offset, limit)
