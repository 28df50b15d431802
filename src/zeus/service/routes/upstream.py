"""The five routes that clients of the existing package call, over the same store as `/api/v1`.

    POST /jobs ─▶ GET /jobs/batch_size ─▶ POST /report ... ─▶ stop_train      PATCH /trials: the client has ended

A client names its GPUs only when it registers, so they are stored with the job. Each report renews the lease for a day.
"""

from __future__ import annotations

import contextlib
import math
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from msgspec import Meta

from zeus.client.api import EpochUsed, TrialRef
from zeus.client.bodies import GpuCount, Name, Text
from zeus.client.local import LocalJobs
from zeus.client.report import spec_json
from zeus.client.running import is_alike
from zeus.cost import LEAST, CostModel, Use
from zeus.errors import AlreadyDone, InputError, NotKnown
from zeus.job import Checked, Ending, Gpus, JobSpec, Kind, Outcome, Trial, TrialRecord, replace
from zeus.job.checks import need
from zeus.job.value import Above, NotBelow, Number, Whole
from zeus.job.wire import Json, plain, read
from zeus.policy.registry import named_policy
from zeus.service import schemas
from zeus.service.auth import Guarded
from zeus.service.routes.dependencies import REPORT, jobs_of, store_of
from zeus.trial.driver import Driver
from zeus.trial.engine import EpochBegan, EpochEnded, Evaluated, Measured, Terms, TrialEngine
from zeus.trial.knowledge import Knowledge

DAY = 86_400.0
LATER = {"start", "baseline_every", "command_id", "command", "include"}  # fields that are not sent to these clients
OURS = LATER | {"policy", "power_limits"}  # fields that they do not know


routes = APIRouter(route_class=Guarded)


class OldGpus(Checked, frozen=True, kw_only=True):
    """The GPUs that clients of the existing package send with a job."""

    max_power: Above  # in watts, summed
    number_of_gpus: GpuCount = 1
    gpu_model: Text = ""


class OldTrial(Checked, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The trial that a request is about."""

    job_id: Name
    batch_size: Whole
    trial_number: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class UpstreamReport(OldTrial, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What a trial has used since it began, and its latest metric."""

    time: Above
    energy: NotBelow  # 0: unknown (a short epoch)
    metric: Number
    current_epoch: Whole


@routes.post(
    "/jobs",
    dependencies=[REPORT],
    status_code=201,
    responses={200: {"description": "The same job was there already."}},
    openapi_extra=schemas.takes(JobSpec),
)
def register(request: Request, response: Response, body: Annotated[Json, schemas.json_body]) -> Json:
    """Register a job: 201 if it is new, 200 if the same job was there, 409 if a different one was.

    The body has the fields of a job, and `max_power`, `number_of_gpus` and `gpu_model`. Newer clients send more fields
    than that. Other GPUs do not make a job different: its costs are translated to them.
    """
    given = {name: value for name, value in body.items() if name in JobSpec.__struct_fields__}
    place = read({name: value for name, value in body.items() if name in OldGpus.__struct_fields__}, OldGpus)
    store, spec = store_of(request), read(given, JobSpec)
    with contextlib.suppress(NotKnown):
        known = store.job(spec.id).spec
        response.status_code = 200
        spec = replace(spec, **{name: getattr(known, name) for name in OURS - given.keys()})
    job = store.register(spec, policy_version=named_policy(spec.policy).version, revise=False)
    store.set_client_gpus(job.id, Gpus(place.gpu_model, place.number_of_gpus, place.max_power))
    told = {name: value for name, value in spec_json(job.spec).items() if name not in LATER}
    return {**told, **plain(place)}


@routes.get("/jobs/batch_size", dependencies=[REPORT])
def batch_size(request: Request, job_id: Annotated[schemas.Name, Query()]) -> Json:
    """Open a trial. A recurrence whose last trial failed is continued before another begins."""
    store = store_of(request)
    gpus = store.client_gpus(job_id)
    if gpus is None:
        raise InputError(
            f"job {job_id!r} was not registered with POST /jobs, so its GPUs are not known. Register it first."
        )
    trial, _ = jobs_of(request).ask(job_id, gpus, lease=DAY, resume=True)
    return {"job_id": job_id, "batch_size": trial.batch_size, "trial_number": trial.number}


@routes.post("/report", dependencies=[REPORT], openapi_extra=schemas.takes(UpstreamReport))
def report(request: Request, body: Annotated[UpstreamReport, schemas.body(UpstreamReport)]) -> Json:
    """Report what a trial has used. The answer says whether it must stop."""
    need(not 0 < body.energy < LEAST, "energy", body.energy, f"0 if it is unknown, or at least {LEAST:g}")
    jobs, kept = jobs_of(request), _meant(request, body)
    trial, so_far, spec = kept.trial, kept.so_far, store_of(request).job(body.job_id).spec
    if trial.ended is not None:
        return _verdict(trial, spec)
    epochs: list[Use] = []
    ref = TrialRef(body.job_id, trial.number, trial.id)
    run = Driver(
        _engine(spec, trial, so_far, body.current_epoch),
        ask=lambda question: jobs.heartbeat(ref, question.so_far, question.cost, lease=DAY).go_on,
        tell_epoch=epochs.append,
    )
    before = run.engine.charged
    joules = max(0.0, body.energy - before.joules) if body.energy else math.nan
    used = Use(joules, max(0.0, body.time - before.seconds))
    run.feed(EpochBegan(), Measured(Kind.EPOCH, _units(so_far, body), used), EpochEnded(), Evaluated(body.metric))
    if run.outcome is None:
        if epochs and not is_alike(jobs.knowledge(body.job_id, trial).epoch, epochs[-1]):
            use = epochs[-1]
            jobs.profiled(EpochUsed(body.job_id, trial.batch_size, trial.ask.gpus, use.joules, use.seconds))
        return {"stop_train": False, "converged": False, "message": f"epoch {body.current_epoch}: go on"}
    return _verdict(_end(jobs, ref, run.outcome), spec)


def _units(so_far: Outcome | None, body: UpstreamReport) -> int:
    """How many epochs this report measures; 0 if it does not show what one epoch uses.

    A report covers several epochs if earlier reports came after the trial was lost, and none if it is a repetition. The
    first epoch includes the warm-up, so a report that adds others to it shows nothing. Nor does a report without its
    energy, or the next one, whose energy is that of both.
    """
    if not body.energy or (so_far is not None and so_far.joules is None):
        return 0
    done = 0 if so_far is None else so_far.epochs
    epochs = max(0, body.current_epoch - done)
    return epochs if done or epochs == 1 else 0


def _engine(spec: JobSpec, trial: Trial, so_far: Outcome | None, epoch: int) -> TrialEngine:
    """The trial's engine in the state after its last report. These clients report no power limits."""
    terms = Terms.of(spec, CostModel(trial.ask.eta, trial.ask.max_watts), trial.decision.cost_limit)
    if (target := trial.ask.target) is not None:
        terms = replace(terms, target_metric=target.metric, higher_is_better=target.higher_is_better)
    if so_far is not None:
        # Reports say what was used since the trial began. So what was unknown in one is charged by the next.
        terms = replace(terms, before=Use(so_far.joules or 0.0, so_far.seconds))
    return TrialEngine.after(terms, Knowledge(), epoch - 1, so_far)


@routes.patch("/trials", dependencies=[REPORT], openapi_extra=schemas.takes(OldTrial))
def end_trial(request: Request, body: Annotated[OldTrial, schemas.body(OldTrial)]) -> Json:
    """The client has ended. A trial without a report counts as crashed, any other as lost."""
    kept = _meant(request, body)
    trial = kept.trial
    if trial.ending is Ending.OPEN:
        gone = Outcome(ending=Ending.CRASHED) if kept.so_far is None else kept.so_far
        trial = _end(jobs_of(request), TrialRef(body.job_id, trial.number, trial.id), gone)
    return {
        "job_id": body.job_id,
        "batch_size": trial.batch_size,
        "trial_number": trial.number,
        "status": trial.ending.value,
    }


@routes.delete("/jobs", dependencies=[REPORT])
def forget(request: Request, job_id: Annotated[schemas.Name, Query()]) -> Json:
    """Remove a job with all its trials and power profiles. For its owner and administrators."""
    store_of(request).forget(job_id)
    return {"message": f"job {job_id!r} was removed"}


def _meant(request: Request, body: OldTrial) -> TrialRecord:
    kept = store_of(request).trial(body.job_id, body.trial_number)
    if kept.trial.batch_size != body.batch_size:
        raise InputError(
            f"trial {body.trial_number} of job {body.job_id!r} has batch size {kept.trial.batch_size}, not "
            f"{body.batch_size}."
        )
    return kept


def _end(jobs: LocalJobs, ref: TrialRef, outcome: Outcome) -> Trial:
    """End the trial. If another request has ended it already, that result stands and is returned."""
    try:
        return jobs.tell(ref, outcome)
    except AlreadyDone:
        return jobs.trial(ref).trial


def _verdict(trial: Trial, spec: JobSpec) -> Json:
    said = {
        Ending.CONVERGED: "the target is reached",
        Ending.STOPPED: "the next epoch would cost more than this trial is worth",
        Ending.NOT_CONVERGED: f"{spec.max_epochs} epochs did not reach the target",
    }
    message = said.get(trial.ending, f"this trial has ended: {trial.ending.value}")
    return {"stop_train": True, "converged": trial.ending is Ending.CONVERGED, "message": message}
