"""`/api/v1/jobs/{job}/trials`: open a trial, report on it, and read it. The store and the policy decide everything.

What every running trial calls (ask, heartbeat, tell) returns a `JSONResponse` of its own: FastAPI would check a plain
answer in another thread, which costs more than the route itself.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from starlette.responses import JSONResponse

from zeus import settings
from zeus.errors import InputError
from zeus.job import Ending, Kept
from zeus.job.wire import to_json
from zeus.jobs.folds import Folds
from zeus.jobs.local import knowledge_of, record_run
from zeus.jobs.messages import OfflineRun
from zeus.jobs.report import trial_json
from zeus.jobs.trial_log import end_of, find_log
from zeus.service import schemas
from zeus.service.overview import sound
from zeus.service.routes.dependencies import (
    PAGE,
    READ,
    REPORT,
    JobId,
    Json,
    Key,
    Life,
    Limit,
    Number,
    Offset,
    TrialId,
    job_of,
    store_of,
    v1_router,
    wire_of,
    wire_trial,
)
from zeus.store import Store
from zeus.store.api import Request as Asked
from zeus.tariff.settings import prices
from zeus.trial.knowledge import knowledge_to_json

routes = v1_router()


@routes.post("/jobs/{job_id}/ask", dependencies=[REPORT], status_code=201, response_model=Json)
def ask(request: Request, job_id: JobId, body: schemas.AskFor, key: Key = None) -> JSONResponse:
    """Open a trial. A repeated request with the same Idempotency-Key gets the same trial."""
    asked = Asked(gpus=body.place(), recurrence=body.recurrence, max_tries=body.max_tries)
    store = store_of(request)
    folds: Folds = request.app.state.folds
    folds.prepare(store, job_id)
    told = wire_trial(request, store.ask(job_id, asked, folds.decide, key=key))
    if wire_of(request) > 1:
        job = store.job(job_id)
        told |= {"spec": to_json(job.spec), "generation": job.generation}  # its owner may have revised it
    return JSONResponse(told, 201)


@routes.get("/jobs/{job_id}/trials", dependencies=[READ])
def trials(
    request: Request,
    job_id: JobId,
    offset: Offset = 0,
    limit: Limit = PAGE,
    ending: Ending | None = None,
    batch_size: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    recurrence: Annotated[int | None, Query(ge=1, le=2**53)] = None,
) -> Json:
    """List trials by number, one page at a time."""
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
    job = store.job(job_id)
    if ending is None and batch_size is None and recurrence is None:
        found, total = store.trials(job_id, after=offset, most=limit), store.count(job_id)
    else:
        found = [
            kept
            for kept in store.trials(job_id, running=ending is Ending.OPEN)
            if ending in (None, kept.trial.ending)
            and batch_size in (None, kept.trial.batch_size)
            and recurrence in (None, kept.trial.ask.recurrence)
        ]
        found, total = found[offset : offset + limit], len(found)
    rates = prices()
    return {"total": total, "offset": offset, "trials": [trial_json(job.spec, kept, rates) for kept in found]}


@routes.get("/jobs/{job_id}/trials/{number}", dependencies=[READ])
def trial(request: Request, job_id: JobId, number: Number, trial_id: TrialId = "") -> Json:
    """One trial, in the wire format, with its lease and what it has used so far."""
    kept: Kept = store_of(request).trial(job_id, number, trial_id=trial_id)
    so_far = None if kept.so_far is None else to_json(kept.so_far, wire_of(request))
    return {**wire_trial(request, kept.trial), "leased_until": kept.leased_until, "so_far": so_far}


@routes.post("/jobs/{job_id}/trials/{number}/heartbeat", dependencies=[REPORT], response_model=Json)
def heartbeat(
    request: Request, job_id: JobId, number: Number, body: schemas.Heartbeat, trial_id: TrialId = ""
) -> JSONResponse:
    """Renew a trial's lease. With `next_cost`: also ask whether the trial may begin its next epoch.

    `next_cost` is what the whole trial will have cost after that epoch.
    """
    so_far = None if body.so_far is None else body.so_far.outcome()
    if body.next_cost is None:
        trial, go_on = store_of(request).renew(job_id, number, so_far, trial_id=trial_id), True
    elif so_far is None:
        raise InputError("next_cost needs so_far. Say there what the trial has used until now.")
    else:
        job = job_of(request, job_id)
        job.hand(number, trial_id)
        go_on = job.progress(number, so_far, body.next_cost)
        trial = job.trial(number)
    return JSONResponse({"trial": wire_trial(request, trial), "go_on": go_on})


@routes.post("/jobs/{job_id}/trials/{number}/tell", dependencies=[REPORT], response_model=Json)
def tell(request: Request, job_id: JobId, number: Number, body: schemas.End, trial_id: TrialId = "") -> JSONResponse:
    """Tell how a trial ended. Telling the same again changes nothing; telling something else is refused (409)."""
    return JSONResponse(wire_trial(request, store_of(request).tell(job_id, number, body.outcome(), trial_id=trial_id)))


@routes.post("/jobs/{job_id}/reports", dependencies=[REPORT], status_code=201)
def late(request: Request, job_id: JobId, body: schemas.Late, life: Life | None = None) -> Json:
    """Report a run that the service did not know of: registers the job, then opens and ends a trial, once per key.

    `life` is the generation of the job that the run was for; it is empty if the client never saw the job. The report is
    refused if the job was reset or removed since.
    """
    spec = body.spec.job()
    if spec.id != job_id:
        raise InputError(f"the report is about job {spec.id!r}, but was sent to job {job_id!r}.")
    ran = OfflineRun(spec, body.place(), body.batch_size, body.key, body.outcome.outcome(), life)
    return wire_trial(request, record_run(store_of(request), ran))


@routes.get("/jobs/{job_id}/trials/{number}/knowledge", dependencies=[READ])
def knowledge(request: Request, job_id: JobId, number: Number, trial_id: TrialId = "") -> Json:
    """What earlier trials say about this one's epochs: what a step or an epoch uses at each power limit."""
    store = store_of(request)
    return knowledge_to_json(knowledge_of(store, job_id, store.trial(job_id, number, trial_id=trial_id).trial))


@routes.get("/jobs/{job_id}/trials/{number}/log", dependencies=[READ])
def trial_log(request: Request, job_id: JobId, number: Number) -> Json:
    """The end of a trial's log, if `zeus run` wrote it on this machine as this user."""
    store, url = store_of(request), request.app.state.settings.store_url
    environ = {**settings.HERE, **({"ZEUS_STORE": url} if url else {})}
    log = find_log(job_id, store.job(job_id).generation, store.trial(job_id, number).trial, environ)
    return {"log": end_of(log)}
