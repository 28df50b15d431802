"""The five routes that clients of the existing package speak, answered over the same store (PEERS: call shapes).

    POST /jobs ─▶ GET /jobs/batch_size ─▶ POST /report ... ─▶ stop_train      PATCH /trials: the client has ended

A client says its GPUs only when it registers, so they are kept with the job. Each report renews the lease for a day.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import ConfigDict

from zeus.cost import CostModel, Use
from zeus.errors import AlreadyDone, InputError, NotKnown
from zeus.job import Ending, Gpus, JobSpec, Kind, Outcome, Trial
from zeus.jobs.local import LocalJob
from zeus.jobs.running import is_alike
from zeus.policy.registry import find_policy
from zeus.service import schemas
from zeus.service.auth import Guarded, Need
from zeus.service.routes.v1 import job_of, store_of
from zeus.store.tokens import Scope
from zeus.trial.driver import Driver
from zeus.trial.engine import EpochBegan, EpochEnded, Evaluated, Measured, Terms, TrialEngine

DAY = 86_400.0

REPORT, ADMIN = Depends(Need(Scope.REPORT).person), Depends(Need(Scope.ADMIN).person)

old = APIRouter(route_class=Guarded)


class OldJob(schemas.Spec):
    """A job as old clients register it."""

    model_config = ConfigDict(extra="ignore")  # newer clients say more than is needed

    max_power: schemas.Above  # in watts, summed
    number_of_gpus: schemas.Gpus_ = 1
    gpu_model: schemas.Text = ""


class OldTrial(schemas.Body):
    """Which trial is meant."""

    model_config = ConfigDict(extra="ignore")

    job_id: schemas.Name
    batch_size: schemas.Whole
    trial_number: Annotated[int, schemas.Field(ge=1, le=2**31 - 1, strict=True)]


class UpstreamReport(OldTrial):
    """What a trial has used since it began, and its metric now."""

    time: schemas.Above
    energy: schemas.Above
    metric: schemas.Number
    current_epoch: schemas.Whole


@old.post("/jobs", dependencies=[REPORT], status_code=201, responses={200: {"description": "Known and equal."}})
def register(request: Request, response: Response, body: OldJob) -> dict[str, Any]:
    """201: new; 200: known and equal; 409: known and different. Another GPU is no difference: costs are translated."""
    store, spec = store_of(request), body.job()
    with contextlib.suppress(NotKnown):
        known = store.job(spec.id).spec
        response.status_code = 200
        ours = {"policy", "power_limits", "baseline_every", "command_id"}  # of which these clients know nothing
        unsaid = ours - body.model_fields_set
        spec = replace(spec, **{name: getattr(known, name) for name in unsaid})
    job = store.register(spec, policy_version=find_policy(spec.policy).version, revise=False)
    store.settle(job.id, Gpus(body.gpu_model, body.number_of_gpus, body.max_power))
    told = {name: value for name, value in asdict(job.spec).items() if name not in ("baseline_every", "command_id")}
    here = {"max_power": body.max_power, "number_of_gpus": body.number_of_gpus, "gpu_model": body.gpu_model}
    return {**told, **here}


@old.get("/jobs/batch_size", dependencies=[REPORT])
def batch_size(request: Request, job_id: Annotated[schemas.Name, Query()]) -> dict[str, Any]:
    """Open a trial. A recurrence whose last try failed is tried again before another is begun."""
    store = store_of(request)
    settled = store.settled(job_id)
    if settled is None:
        raise InputError(f"job {job_id!r} was not registered by POST /jobs, so its GPUs are not known.")
    trial = job_of(request, job_id).ask(settled, lease=DAY, resume=True)
    return {"job_id": job_id, "batch_size": trial.batch_size, "trial_number": trial.number}


@old.post("/report", dependencies=[REPORT])
def report(request: Request, body: UpstreamReport) -> dict[str, Any]:
    """How far a trial has come; whether it must stop."""
    store, job = store_of(request), job_of(request, body.job_id)
    trial = _meant(request, body)
    if trial.ended is not None:
        return _verdict(trial, job.spec)
    epochs: list[Use] = []
    so_far = store.trial(body.job_id, trial.number).so_far
    run = Driver(
        _engine(job, trial, so_far, body.current_epoch),
        ask=lambda question: job.progress(trial.number, question.so_far, question.cost, lease=DAY),
        tell_epoch=epochs.append,
    )
    before = run.engine.spent
    used = Use(max(0.0, body.energy - before.joules), max(0.0, body.time - before.seconds))
    run.feed(EpochBegan(), Measured(Kind.EPOCH, _units(so_far, body), used), EpochEnded(), Evaluated(body.metric))
    if run.outcome is None:
        if epochs and not is_alike(job.knowledge(trial).epoch, epochs[-1]):
            job.profiled(trial.batch_size, trial.ask.gpus, joules=epochs[-1].joules, seconds=epochs[-1].seconds)
        return {"stop_train": False, "converged": False, "message": f"epoch {body.current_epoch}: go on"}
    return _verdict(_end(job, trial.number, run.outcome), job.spec)


def _units(so_far: Outcome | None, body: UpstreamReport) -> int:
    """The epochs that a report tells of, as far as they say what one uses.

    They are more than one where the reports before it came after the trial was lost, and none where it is repeated. The
    first epoch together with others is no example.
    """
    done = 0 if so_far is None else so_far.epochs
    epochs = max(0, body.current_epoch - done)
    return epochs if done or epochs == 1 else 0


def _engine(job: LocalJob, trial: Trial, so_far: Outcome | None, epoch: int) -> TrialEngine:
    """The trial's engine as its last report left it, about to hear of this epoch. Power limits are not told of."""
    terms = Terms.of(job.spec, CostModel(trial.ask.eta, trial.ask.max_watts), trial.decision.cost_limit)
    if (target := trial.ask.target) is not None:
        terms = replace(terms, target_metric=target.metric, higher_is_better=target.higher_is_better)
    engine = TrialEngine(terms, epochs=epoch - 1)
    if so_far is None:
        return engine
    stretches = {(one.kind, one.limit_watts, one.cold): one for one in so_far.stretches}
    return replace(engine, spent=Use(so_far.joules or 0.0, so_far.seconds), stretches=stretches)


@old.patch("/trials", dependencies=[REPORT])
def end_trial(request: Request, body: OldTrial) -> dict[str, Any]:
    """The client's word that it has ended. One that never reported an epoch has crashed; another is given up."""
    trial = _meant(request, body)
    kept = store_of(request).trial(body.job_id, body.trial_number)
    if trial.ending is Ending.OPEN:
        gone = Outcome(ending=Ending.CRASHED) if kept.so_far is None else kept.so_far
        trial = _end(job_of(request, body.job_id), trial.number, gone)
    return {
        "job_id": body.job_id,
        "batch_size": trial.batch_size,
        "trial_number": trial.number,
        "status": trial.ending.value,
    }


@old.delete("/jobs", dependencies=[ADMIN])
def forget(request: Request, job_id: Annotated[schemas.Name, Query()]) -> dict[str, Any]:
    """Remove a job."""
    store_of(request).forget(job_id)
    return {"message": f"job {job_id!r} was removed"}


def _meant(request: Request, body: OldTrial) -> Trial:
    trial = store_of(request).trial(body.job_id, body.trial_number).trial
    if trial.batch_size != body.batch_size:
        raise InputError(
            f"trial {trial.number} of job {body.job_id!r} has batch size {trial.batch_size}, not {body.batch_size}."
        )
    return trial


def _end(job: LocalJob, number: int, outcome: Outcome) -> Trial:
    """As told, or as it was told by somebody who was quicker: what is stored is the answer, and no error."""
    try:
        return job.tell(number, outcome)
    except AlreadyDone:
        return job.trial(number)


def _verdict(trial: Trial, spec: JobSpec) -> dict[str, Any]:
    said = {
        Ending.CONVERGED: "the target is reached",
        Ending.STOPPED: "the next epoch would cost more than this trial is worth",
        Ending.NOT_CONVERGED: f"{spec.max_epochs} epochs did not reach the target",
    }
    message = said.get(trial.ending, f"this trial has ended: {trial.ending.value}")
    return {"stop_train": True, "converged": trial.ending is Ending.CONVERGED, "message": message}
