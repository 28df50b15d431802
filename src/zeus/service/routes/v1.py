"""`/api/v1`: the verbs of a recurring job and the views of it. Every decision is the store's or the policy's."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse

from zeus.env import prices
from zeus.errors import InputError, NotKnown
from zeus.job import Ending, JobSpec, Kept, Trial
from zeus.job.wire import VERSION, from_json, to_json
from zeus.jobs.local import LocalJob, knowledge_of, record_run
from zeus.jobs.messages import OfflineRun
from zeus.jobs.report import attempt, full, report
from zeus.policy.registry import find_policy
from zeus.profile import PowerProfile, ProfileKey
from zeus.service import schemas
from zeus.service.auth import Guarded, Need, who
from zeus.service.dashboard.export import profiles_of
from zeus.service.overview import Overview, sound, totals
from zeus.service.trial_logs import log_of
from zeus.store import Store
from zeus.store.api import Job
from zeus.store.api import Request as Asked
from zeus.store.json_lines import job_to_json
from zeus.store.tokens import Scope
from zeus.trial.knowledge import knowledge_to_json

READ, REPORT, ADMIN = (Depends(Need(scope).person) for scope in Scope)
PAGE = 50

JobId = Annotated[schemas.Name, BeforeValidator(unquote), Path(examples=["sentiment"])]  # see `around.keep_slashes`
Number = Annotated[int, Path(ge=1, le=2**31 - 1)]
Offset = Annotated[int, Query(ge=0, le=2**53)]
Limit = Annotated[int, Query(ge=1, le=1000)]
Key = Annotated[schemas.Key | None, Header(alias="Idempotency-Key", examples=["5f0c6f9e"])]
# Which trial, or which life of a job, is meant: left out by version 0.1, which means whichever has the number or name.
TrialId = Annotated[str, Query(max_length=64, pattern="^[0-9a-f]*$")]
Life = Annotated[str, Query(max_length=64, pattern="^[0-9a-f]*$")]
Revise = Annotated[bool, Query(description="Also where trials for another target would not count any more.")]
Json = dict[str, Any]


NDJSON = "application/x-ndjson"
LINES: Json = {"requestBody": {"content": {NDJSON: {"schema": {"type": "string"}}}, "required": True}}

api = APIRouter(prefix="/api/v1", route_class=Guarded)


def store_of(request: Request) -> Store:
    """The store that this service is over."""
    store: Store = request.app.state.store
    return store


def overview_of(request: Request) -> Overview:
    """What is remembered of jobs between requests."""
    overview: Overview = request.app.state.overview
    return overview


def job_of(request: Request, job_id: str) -> LocalJob:
    """The verbs of one job; folds are kept between requests."""
    return LocalJob(store_of(request), job_id, request.app.state.folds)


def wire_of(request: Request) -> int:
    """The version of the wire format that the client reads; clients of before version 2 do not say."""
    said = request.headers.get("zeus-wire", "1")
    return max(1, min(VERSION, int(said))) if said.isdecimal() and len(said) < 10 else 1


def _job(request: Request, job: Job) -> Json:
    wire = wire_of(request)
    spec = to_json(job.spec, wire)
    body = {"id": job.id, **job_to_json(job), "spec": spec, "generation": job.generation}
    if wire == 1:  # a trial's η was looked up in its job then: all that such a client asks for are of the present one
        body = {**{name: value for name, value in body.items() if name != "first"}, "since": 0, "etas": []}
    return body


def _trial(request: Request, trial: Trial) -> Json:
    return to_json(trial, wire_of(request))


# ---------------------------------------------------------------------- jobs


@api.post("/jobs", dependencies=[REPORT], status_code=201, responses={200: {"description": "Known, or revised."}})
def register(request: Request, response: Response, body: schemas.Register, revise: Revise = False) -> Json:
    """The job of this spec: made (201), or found and revised where it differs (200)."""
    store, spec = store_of(request), body.spec.job()
    version = find_policy(spec.policy).version
    with contextlib.suppress(NotKnown):
        store.job(spec.id)
        response.status_code = 200
    return _job(request, store.register(spec, policy_version=version, void=revise))


@api.get("/jobs", dependencies=[READ])
def jobs(
    request: Request, offset: Offset = 0, limit: Limit = PAGE, q: Annotated[str, Query(max_length=200)] = ""
) -> Json:
    """A page of all jobs, by id; `q`: only those whose id holds it."""
    found = [one for one in sorted(store_of(request).pulse().items()) if q.lower() in one[0].lower()]
    rows = overview_of(request).briefs(dict(found[offset : offset + limit]))
    return {"total": len(found), "offset": offset, "jobs": rows}


@api.get("/jobs/{job_id}", dependencies=[READ])
def show(request: Request, job_id: JobId) -> Json:
    """Everything about one job."""
    return sound(job_id, lambda: full(report(store_of(request), job_id, request.app.state.folds), prices()))


@api.get("/jobs/{job_id}/registration", dependencies=[READ])
def registration(request: Request, job_id: JobId) -> Json:
    """The job as registered, for programs."""
    return _job(request, store_of(request).job(job_id))


@api.patch("/jobs/{job_id}", dependencies=[REPORT])
def change(request: Request, job_id: JobId, body: schemas.Change, revise: Revise = False) -> Json:
    """A revision; what is left out stays as it is."""
    given = {name: value for name, value in body.model_dump().items() if value is not None}

    def changed(job: Job) -> tuple[JobSpec, int]:
        spec = replace(job.spec, **given)
        return spec, find_policy(spec.policy).version

    return _job(request, store_of(request).revise(job_id, changed, void=revise))


@api.delete("/jobs/{job_id}", dependencies=[ADMIN], status_code=204, response_model=None)
def forget(request: Request, job_id: JobId) -> None:
    """Remove a job with all its facts."""
    store_of(request).forget(job_id)


@api.post("/jobs/{job_id}/reset", dependencies=[ADMIN])
def reset(request: Request, job_id: JobId, body: schemas.Reset) -> Json:
    """Let a job learn afresh, as registered, with the newest version of its policy. With `pulse`: unless it changed."""
    store = store_of(request)
    version = find_policy(store.job(job_id).spec.policy).version
    return _job(request, store.restart(job_id, policy_version=version, pulse=body.pulse))


@api.get("/jobs/{job_id}/beliefs", dependencies=[READ])
def beliefs(request: Request, job_id: JobId) -> Json:
    """What the policy believes of each batch size where the job last ran."""
    told = show(request, job_id)
    return {name: told[name] for name in ("job", "policy", "phase", "gpu_model", "next", "stuck", "sizes")}


# ---------------------------------------------------------------------- trials


# What every running trial asks for answers with a response of its own: FastAPI would check it in another thread.


@api.post("/jobs/{job_id}/ask", dependencies=[REPORT], status_code=201, response_model=Json)
def ask(request: Request, job_id: JobId, body: schemas.AskFor, key: Key = None) -> JSONResponse:
    """Open a trial. Asked again with the same Idempotency-Key: the same trial, and no other is opened."""
    asked = Asked(gpus=body.place(), recurrence=body.recurrence, max_tries=body.max_tries)
    store = store_of(request)
    told = _trial(request, store.ask(job_id, asked, request.app.state.folds.decide, key=key))
    if wire_of(request) > 1:
        job = store.job(job_id)
        told |= {"spec": to_json(job.spec), "generation": job.generation}  # as its owner may have revised it
    return JSONResponse(told, 201)


@api.get("/jobs/{job_id}/trials", dependencies=[READ])
def trials(
    request: Request,
    job_id: JobId,
    offset: Offset = 0,
    limit: Limit = PAGE,
    ending: Ending | None = None,
    batch_size: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    recurrence: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> Json:
    """A page of trials, by number."""
    return sound(job_id, lambda: _trials(store_of(request), job_id, offset, limit, ending, batch_size, recurrence))


def _trials(
    store: Store,
    job_id: str,
    offset: int,
    limit: int,
    ending: Ending | None,
    batch_size: int | None,
    recurrence: int | None,
) -> Json:
    job, total = store.job(job_id), store.count(job_id)
    if ending is None and batch_size is None and recurrence is None:
        found = store.trials(job_id, after=offset, most=limit)
    else:
        found = [
            kept
            for kept in store.trials(job_id)
            if ending in (None, kept.trial.ending)
            and batch_size in (None, kept.trial.batch_size)
            and recurrence in (None, kept.trial.ask.recurrence)
        ]
        found, total = found[offset : offset + limit], len(found)
    return {"total": total, "offset": offset, "trials": [attempt(job.spec, kept) for kept in found]}


@api.get("/jobs/{job_id}/trials/{number}", dependencies=[READ])
def trial(request: Request, job_id: JobId, number: Number, trial_id: TrialId = "") -> Json:
    """One trial as it stands."""
    kept: Kept = store_of(request).trial(job_id, number, trial_id=trial_id)
    so_far = None if kept.so_far is None else to_json(kept.so_far, wire_of(request))
    return {**_trial(request, kept.trial), "leased_until": kept.leased_until, "so_far": so_far}


@api.post("/jobs/{job_id}/trials/{number}/heartbeat", dependencies=[REPORT], response_model=Json)
def heartbeat(
    request: Request, job_id: JobId, number: Number, body: schemas.Heartbeat, trial_id: TrialId = ""
) -> JSONResponse:
    """It is alive. With `next_cost`: whether it may begin the next epoch, after which it would have cost this."""
    so_far = None if body.so_far is None else body.so_far.outcome()
    if body.next_cost is None:
        trial, go_on = store_of(request).renew(job_id, number, so_far, trial_id=trial_id), True
    elif so_far is None:
        raise InputError("next_cost needs so_far: what the trial has used until now.")
    else:
        job = job_of(request, job_id)
        job.hand(number, trial_id)
        go_on = job.progress(number, so_far, body.next_cost)
        trial = job.trial(number)
    return JSONResponse({"trial": _trial(request, trial), "go_on": go_on})


@api.post("/jobs/{job_id}/trials/{number}/tell", dependencies=[REPORT], response_model=Json)
def tell(request: Request, job_id: JobId, number: Number, body: schemas.End, trial_id: TrialId = "") -> JSONResponse:
    """How it ended, in time or late. The same told again changes nothing; something else is refused (409)."""
    return JSONResponse(_trial(request, store_of(request).tell(job_id, number, body.outcome(), trial_id=trial_id)))


@api.post("/jobs/{job_id}/reports", dependencies=[REPORT], status_code=201)
def late(request: Request, job_id: JobId, body: schemas.Late, life: Life | None = None) -> Json:
    """A run that the service knew nothing of: the job is registered, a trial opened and ended, once for each key.

    `life` is the generation of the job that the run was for, empty where the client never saw the job. A job that was
    reset since does not take it, and one that was removed is not made again by a client that had seen it.
    """
    spec = body.spec.job()
    if spec.id != job_id:
        raise InputError(f"a report on job {spec.id!r} is none on job {job_id!r}.")
    ran = OfflineRun(spec, body.place(), body.batch_size, body.key, body.outcome.outcome(), life)
    return _trial(request, record_run(store_of(request), ran))


@api.get("/jobs/{job_id}/trials/{number}/knowledge", dependencies=[READ])
def knowledge(request: Request, job_id: JobId, number: Number, trial_id: TrialId = "") -> Json:
    """What earlier trials tell of this one's epochs: what its units use at each power limit."""
    store = store_of(request)
    return knowledge_to_json(knowledge_of(store, job_id, store.trial(job_id, number, trial_id=trial_id).trial))


@api.get("/jobs/{job_id}/trials/{number}/log", dependencies=[READ])
def trial_log(request: Request, job_id: JobId, number: Number) -> Json:
    """The end of the log that `zeus run` wrote, where that ran on this machine under this user."""
    store = store_of(request)
    trial = store.trial(job_id, number).trial
    found = log_of(store.job(job_id), trial, request.app.state.settings.store_url)
    if found is None:
        raise NotKnown(f"no log of trial {number} lies on this machine: it is where `zeus run` ran it.")
    return {"log": found}


@api.post("/jobs/{job_id}/profiled", dependencies=[REPORT], status_code=201)
def profiled(request: Request, job_id: JobId, body: schemas.Epoch, life: Life = "") -> Json:
    """What an epoch of a size uses became known."""
    gpus = body.place()
    use = {"joules": body.joules, "seconds": body.seconds}
    store_of(request).profiled(job_id, body.batch_size, gpus, **use, life=life)
    return {"batch_size": body.batch_size, "gpu_model": gpus.label}


@api.post("/jobs/{job_id}/excuse", dependencies=[REPORT])
def excuse(request: Request, job_id: JobId, body: schemas.Excuse, life: Life = "") -> Json:
    """Crashes of these trials, if they did no epoch, were the script's own: their sizes are offered again."""
    return _job(request, store_of(request).excuse(job_id, body.trials, life=life))


@api.post("/jobs/{job_id}/pardon", dependencies=[ADMIN])
def pardon(request: Request, job_id: JobId, body: schemas.Pardon) -> Json:
    """A size that crashed may be offered again."""
    store_of(request).pardon(job_id, body.batch_size)
    return {"batch_size": body.batch_size}


# ---------------------------------------------------------------------- profiles


def _key(
    job_id: JobId,
    batch_size: Annotated[int, Query(ge=1, le=2**31 - 1)],
    gpu_model: Annotated[schemas.Text, Query()],
    gpu_count: Annotated[int, Query(ge=1, le=100_000)],
) -> ProfileKey:
    return ProfileKey(job_id, batch_size, gpu_model, gpu_count)


OfKey = Annotated[ProfileKey, Depends(_key)]


@api.get("/jobs/{job_id}/profiles", dependencies=[READ])
def profile(request: Request, key: OfKey) -> Json:
    """The power profile of exactly this key."""
    found = store_of(request).get_profile(key)
    if found is None:
        raise NotKnown(f"no power profile is kept for {key}.")
    return to_json(found, wire_of(request))


@api.put("/jobs/{job_id}/profiles", dependencies=[REPORT])
def put_profile(request: Request, key: OfKey, body: schemas.Profile) -> Json:
    """Keep it in place of what was kept under this key."""
    found = from_json(body.model_dump(), PowerProfile)
    store_of(request).put_profile(key, found)
    return to_json(found, wire_of(request))


@api.get("/jobs/{job_id}/profiles/all", dependencies=[READ])
def profiles(request: Request, job_id: JobId) -> list[Json]:
    """All profiles of the job, each with its best limit (Equation 7) for the job's η."""
    found = sound(job_id, lambda: profiles_of(store_of(request), job_id))
    return [{**one, "profile": {**one["profile"], "version": wire_of(request)}} for one in found]


# ---------------------------------------------------------------------- all of it


@api.get("/pulse", dependencies=[READ])
def pulse(request: Request) -> dict[str, str]:
    """What changes whenever a job does: a page asks for this, and then only for what has changed."""
    return store_of(request).pulse()


@api.get("/summary", dependencies=[READ])
def summary(request: Request) -> Json:
    """What all jobs together have used and saved."""
    return totals(overview_of(request).briefs(store_of(request).pulse()))


@api.get("/export", dependencies=[READ], responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}})
def export(request: Request, job: Annotated[list[schemas.Name] | None, Query()] = None) -> Response:
    """All facts of these jobs, or of all, as JSON lines."""
    lines = store_of(request).export(job)
    return Response("".join(f"{line}\n" for line in lines), media_type=NDJSON)


@api.post("/import", dependencies=[ADMIN], openapi_extra=LINES)
async def take_in(request: Request) -> JSONResponse:
    """Take in what `export` gave, all or nothing."""
    try:
        lines = [line for line in (await request.body()).decode().split("\n") if line]
    except UnicodeDecodeError as wrong:
        raise InputError(f"not text: {wrong}. Give what `export` gave.") from wrong
    return JSONResponse({"jobs": await run_in_threadpool(store_of(request).import_lines, lines)})


@api.get("/me")
def me(request: Request) -> Json:
    """Whose token this is."""
    person = who(request)
    return {"name": None if person is None else person.name, "scope": None if person is None else person.scope.value}
