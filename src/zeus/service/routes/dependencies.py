"""What the routes share: scopes, checked parameters, and what a request finds in the application."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import BeforeValidator

from zeus.job import Trial
from zeus.job.wire import VERSION, to_json
from zeus.jobs.local import LocalJob
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
# The trial or the generation of the job that is meant. Clients of version 0.1 leave them out; then the number or the
# name alone decides.
TrialId = Annotated[str, Query(max_length=64, pattern="^[0-9a-f]*$")]
Life = Annotated[str, Query(max_length=64, pattern="^[0-9a-f]*$")]
Revise = Annotated[bool, Query(description="Revise the job even if its earlier trials then no longer count.")]
Json = dict[str, Any]

NDJSON = "application/x-ndjson"


def v1_router() -> APIRouter:
    """A router for one resource of `/api/v1`."""
    return APIRouter(prefix="/api/v1", route_class=Guarded)


def store_of(request: Request) -> Store:
    """The store that this service serves."""
    store: Store = request.app.state.store
    return store


def overview_of(request: Request) -> Overview:
    """The briefs of jobs, kept between requests."""
    overview: Overview = request.app.state.overview
    return overview


def job_of(request: Request, job_id: str) -> LocalJob:
    """One job of the store. Policy states are kept between requests."""
    return LocalJob(store_of(request), job_id, request.app.state.folds)


def wire_of(request: Request) -> int:
    """The version of the wire format that the client reads. Clients from before version 2 send no header."""
    said = request.headers.get("zeus-wire", "1")
    return max(1, min(VERSION, int(said))) if said.isdecimal() and len(said) < 10 else 1


def registered_job(request: Request, job: Job) -> Json:
    """A job as registered, in the client's wire format."""
    wire = wire_of(request)
    spec = to_json(job.spec, wire)
    body = {"id": job.id, **job_to_json(job), "spec": spec, "generation": job.generation}
    if wire == 1:  # such a client looks up a trial's η in its job, and asks only for trials of the present one
        body = {**{name: value for name, value in body.items() if name != "first"}, "since": 0, "etas": []}
    return body


def wire_trial(request: Request, trial: Trial) -> Json:
    """A trial in the client's wire format."""
    return to_json(trial, wire_of(request))
