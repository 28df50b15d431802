"""`/api/v1/jobs/{job}/trials`: open a trial, report on it, and read it. The store and the policy decide everything.

What every running trial calls (ask, heartbeat, tell), and what is large, returns a response of its own (`answer`):
FastAPI would check a plain answer in another thread, which costs more than the route itself.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response

from zeus import settings
from zeus.client.api import OfflineRun, TrialRef
from zeus.client.bodies import AskBody, HeartbeatBody, LogBody, OfflineRunBody, registered_json
from zeus.client.report import trial_json
from zeus.client.trial_log import told_log
from zeus.errors import InputError
from zeus.job import Ending, Outcome, TrialRecord
from zeus.job.wire import plain, to_json
from zeus.policy.registry import named_policy
from zeus.service import schemas
from zeus.service.overview import sound
from zeus.service.routes.dependencies import (
    PAGE,
    READ,
    REPORT,
    Asker,
    JobId,
    Json,
    Key,
    Life,
    Limit,
    Number,
    Offset,
    Points,
    TrialId,
    WithCurves,
    answer,
    jobs_of,
    store_of,
    v1_router,
)
from zeus.store.api import TrialFilter
from zeus.tariff.settings import prices

routes = v1_router()


@routes.post(
    "/jobs/{job_id}/ask",
    dependencies=[REPORT],
    status_code=201,
    response_model=Json,
    openapi_extra=schemas.takes(AskBody),
)
def ask(
    request: Request, job_id: JobId, body: Annotated[AskBody, schemas.body(AskBody)], asker: Asker, key: Key = None
) -> Response:
    """Open a trial. A repeated request with the same Idempotency-Key gets the same trial.

    The answer has the job, too, as its owner may have revised it.
    """
    trial, now = jobs_of(request).ask(job_id, body.place, body.recurrence, body.max_tries, key=key, origin=asker)
    return answer({**to_json(trial), **registered_json(now)}, 201)


@routes.get("/jobs/{job_id}/trials", dependencies=[READ], response_model=Json)
def trials(
    request: Request,
    job_id: JobId,
    offset: Offset = 0,
    limit: Limit = PAGE,
    ending: Ending | None = None,
    batch_size: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    recurrence: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    newest: Annotated[bool, Query(description="The newest first.")] = False,
    curves: WithCurves = True,
    points: Points = None,
) -> Response:
    """List trials by number, one page at a time."""
    store, only = store_of(request), TrialFilter(ending, batch_size, recurrence)

    def told() -> Json:
        job, found = store.job(job_id), store.find_trials(job_id, only, after=offset, most=limit, newest=newest)
        rates, logs = prices(), store.logs.times(job_id, [kept.trial.number for kept in found.page])
        rows = [trial_json(job.spec, kept, rates, logs, points=points if curves else 0) for kept in found.page]
        return {"total": found.total, "offset": offset, "trials": rows}

    return answer(sound(job_id, told))


@routes.get("/jobs/{job_id}/trials/{number}", dependencies=[READ])
def trial(request: Request, job_id: JobId, number: Number, trial_id: TrialId = "") -> Json:
    """One trial, in the wire format, with its lease and what it has used so far."""
    kept: TrialRecord = store_of(request).trial(job_id, number, trial_id=trial_id)
    so_far = None if kept.so_far is None else to_json(kept.so_far)
    return {**to_json(kept.trial), "leased_until": kept.leased_until, "so_far": so_far}


@routes.post(
    "/jobs/{job_id}/trials/{number}/heartbeat",
    dependencies=[REPORT],
    response_model=Json,
    openapi_extra=schemas.takes(HeartbeatBody),
)
def heartbeat(
    request: Request,
    job_id: JobId,
    number: Number,
    body: Annotated[HeartbeatBody, schemas.body(HeartbeatBody)],
    trial_id: TrialId = "",
) -> Response:
    """Renew a trial's lease. With `next_cost`: also ask whether the trial may begin its next epoch.

    `next_cost` is what the whole trial will have cost after that epoch.
    """
    found = jobs_of(request).heartbeat(TrialRef(job_id, number, trial_id), body.so_far, body.next_cost)
    return answer({"trial": to_json(found.trial), "go_on": found.go_on})


@routes.post(
    "/jobs/{job_id}/trials/{number}/tell",
    dependencies=[REPORT],
    response_model=Json,
    openapi_extra=schemas.takes(Outcome),
)
def tell(
    request: Request,
    job_id: JobId,
    number: Number,
    body: Annotated[Outcome, schemas.body(Outcome)],
    trial_id: TrialId = "",
) -> Response:
    """Tell how a trial ended. Telling the same again changes nothing; telling something else is refused (409)."""
    return answer(to_json(jobs_of(request).tell(TrialRef(job_id, number, trial_id), body)))


@routes.post(
    "/jobs/{job_id}/reports", dependencies=[REPORT], status_code=201, openapi_extra=schemas.takes(OfflineRunBody)
)
def late(
    request: Request,
    job_id: JobId,
    body: Annotated[OfflineRunBody, schemas.body(OfflineRunBody)],
    asker: Asker,
    life: Life | None = None,
) -> Json:
    """Report a run that the service did not know of: registers the job, then opens and ends a trial, once per key.

    `life` is the generation of the job that the run was for; it is empty if the client never saw the job. The report is
    refused if the job was reset or removed since.
    """
    if body.spec.id != job_id:
        raise InputError(f"the report is about job {body.spec.id!r}, but was sent to job {job_id!r}.")
    named_policy(body.spec.policy)
    run = OfflineRun(body.spec, body.place, body.batch_size, body.key, body.outcome, life, origin=asker)
    return to_json(jobs_of(request).record_run(run))


@routes.get("/jobs/{job_id}/trials/{number}/knowledge", dependencies=[READ])
def knowledge(request: Request, job_id: JobId, number: Number, trial_id: TrialId = "") -> Json:
    """What earlier trials say about this one's epochs: what a step or an epoch uses at each power limit."""
    jobs = jobs_of(request)
    return dict(plain(jobs.knowledge(job_id, jobs.trial(TrialRef(job_id, number, trial_id)).trial)))


@routes.get("/jobs/{job_id}/trials/{number}/log", dependencies=[READ])
def trial_log(request: Request, job_id: JobId, number: Number) -> Json:
    """The end of a trial's log, and the host and folder that it ran in. If there is none: 404, which names them."""
    store, url = store_of(request), request.app.state.settings.store_url
    return told_log(store, job_id, number, {**settings.HERE, **({"ZEUS_STORE": url} if url else {})})


@routes.put(
    "/jobs/{job_id}/trials/{number}/log",
    dependencies=[REPORT],
    status_code=204,
    response_model=None,
    openapi_extra=schemas.takes(LogBody),
)
def keep_log(
    request: Request,
    job_id: JobId,
    number: Number,
    body: Annotated[LogBody, schemas.body(LogBody)],
    trial_id: TrialId = "",
) -> None:
    """Keep the end of a trial's log, at most 64 KiB of it."""
    store_of(request).logs.keep(job_id, number, body.text, trial_id=trial_id)
