"""What the routes share: scopes, checked parameters, and what a request finds in the application."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BeforeValidator

from zeus.client.local import LocalJobs
from zeus.client.origin import HEADER, from_header
from zeus.job import Origin
from zeus.service import schemas
from zeus.service.auth import Guarded, Need
from zeus.service.overview import Overview
from zeus.store import Store
from zeus.store.api import Job
from zeus.store.json_lines import job_to_json
from zeus.store.tokens import Scope

READ, REPORT, ADMIN = (Depends(Need(scope).person) for scope in Scope)
PAGE = 50

# The path arrives still quoted (`middleware.keep_slashes`), so that a job's name may hold a slash.
JobId = Annotated[schemas.Name, BeforeValidator(unquote), Path(examples=["sentiment"])]
Number = Annotated[int, Path(ge=1, le=2**31 - 1)]
Offset = Annotated[int, Query(ge=0, le=2**53)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Search = Annotated[str, Query(max_length=200, description="Only jobs whose id contains this text.")]
Key = Annotated[schemas.Key | None, Header(alias="Idempotency-Key", examples=["5f0c6f9e"])]
# The trial or the generation of the job that is meant. Without it the number or the name alone decides.
TrialId = Annotated[str, Query(max_length=64, pattern="^[0-9a-f]*$")]
Life = Annotated[str, Query(max_length=64, pattern="^[0-9a-f]*$")]
Points = Annotated[
    int | None, Query(ge=1, le=1000, description="At most so many epochs of each trial, evenly. Default: all.")
]
WithCurves = Annotated[bool, Query(description="With the epochs of each trial.")]
Revise = Annotated[bool, Query(description="Revise the job even if its earlier trials then no longer count.")]
Json = dict[str, Any]


def _asker(request: Request) -> Origin | None:
    return from_header(request.headers.get(HEADER))


Asker = Annotated[Origin | None, Depends(_asker)]  # who asks and where, as the client says

NDJSON = "application/x-ndjson"


def v1_router() -> APIRouter:
    """A router for one resource of `/api/v1`."""
    return APIRouter(prefix="/api/v1", route_class=Guarded)


def store_of(request: Request) -> Store:
    """The store that this service serves."""
    store: Store = request.app.state.store
    return store


def jobs_of(request: Request) -> LocalJobs:
    """The jobs of that store. Policy states are kept between requests."""
    jobs: LocalJobs = request.app.state.jobs
    return jobs


def overview_of(request: Request) -> Overview:
    """The briefs of jobs, kept between requests."""
    overview: Overview = request.app.state.overview
    return overview


def answer(data: Json, status: int = 200) -> Response:
    """A JSON answer that needs no check."""
    return Response(msgspec.json.encode(data), status, media_type="application/json")


def registered_job(job: Job) -> Json:
    """A job as registered."""
    return {"id": job.id, **job_to_json(job), "generation": job.generation, "owner": job.owner}


def audit_page(request: Request, job_id: str | None, offset: int, limit: int) -> Json:
    """A page of the audit of a job, or of all jobs."""
    found = store_of(request).audit.read(job_id, after=offset, most=limit)
    return {"total": found.total, "entries": [one.to_json() for one in found.entries]}
