"""The five routes that clients of the existing package call, over the same store as `/api/v1`.

    POST /jobs ─▶ GET /jobs/batch_size ─▶ POST /report ... ─▶ stop_train      PATCH /trials: the client has ended

A client names its GPUs only when it registers, so they are stored with the job. Each report renews the lease for a day.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ConfigDict

from zeus.cost import CostModel, Use
from zeus.errors import AlreadyDone, InputError, NotKnown
from zeus.job import Ending, Gpus, JobSpec, Kind, Outcome, Trial
from zeus.jobs.local import LocalJob
from zeus.jobs.report import spec_json
from zeus.jobs.running import is_alike
from zeus.policy.registry import find_policy
from zeus.service import schemas
from zeus.service.auth import Guarded
from zeus.service.routes.dependencies import ADMIN, REPORT, job_of, store_of
from zeus.trial.driver import Driver
from zeus.trial.engine import EpochBegan, EpochEnded, Evaluated, Measured, Terms, TrialEngine

DAY = 86_400.0


class Untyped(Guarded):
    """A route whose bodies are JSON even if the client does not say so. The clients of these routes never do.

    A page of another site cannot use this: `auth.check_origin` refuses what it sends, whatever the type.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """The handler that FastAPI calls for each request."""
        handle = super().get_route_handler()

        async def typed(request: Request) -> Response:
            if "content-type" not in request.headers:
                headers = [*request.scope["headers"], (b"content-type", b"application/json")]
                request = Request({**request.scope, "headers": headers}, request.receive)
            return await handle(request)

        return typed


routes = APIRouter(route_class=Untyped)


class OldJob(schemas.Spec):
    """A job as clients of the existing package register it."""

    model_config = ConfigDict(extra="ignore")  # newer clients send more fields than these routes need

    max_power: schemas.Above  # in watts, summed over the GPUs
    number_of_gpus: schemas.Gpus_ = 1
    gpu_model: schemas.Text = ""


class OldTrial(schemas.Body):
    """The trial that a request is about."""

    model_config = ConfigDict(extra="ignore")

    job_id: schemas.Name
    batch_size: schemas.Whole
    trial_number: Annotated[int, schemas.Field(ge=1, le=2**31 - 1, strict=True)]


class UpstreamReport(OldTrial):
    """What a trial has used since it began, and its latest metric."""

    time: schemas.Above
    energy: schemas.Above | Annotated[float, schemas.Field(ge=0, le=0, strict=True)]  # 0: unknown (a short epoch)
    metric: schemas.Number
    current_epoch: schemas.Whole


@routes.post(
    "/jobs", dependencies=[REPORT], status_code=201, responses={200: {"description": "The same job was there already."}}
)
def register(request: Request, response: Response, body: OldJob) -> dict[str, Any]:
    """Register a job: 201 if it is new, 200 if the same job was there, 409 if a different one was.

    Other GPUs do not make a job different: its costs are translated to them.
    """
    store, spec = store_of(request), body.job()
    with contextlib.suppress(NotKnown):
        known = store.job(spec.id).spec
        response.status_code = 200
        # Fields that these clients do not know.
        ours = {"policy", "power_limits", "baseline_every", "command_id", "include"}
        unsaid = ours - body.model_fields_set
        spec = replace(spec, **{name: getattr(known, name) for name in unsaid})
    job = store.register(spec, policy_version=find_policy(spec.policy).version, revise=False)
    store.settle(job.id, Gpus(body.gpu_model, body.number_of_gpus, body.max_power))
    here = {"max_power": body.max_power, "number_of_gpus": body.number_of_gpus, "gpu_model": body.gpu_model}
    return {**spec_json(job.spec, 1), "beta_knob": job.spec.beta_knob, **here}


@routes.get("/jobs/batch_size", dependencies=[REPORT])
def batch_size(request: Request, job_id: Annotated[schemas.Name, Query()]) -> dict[str, Any]:
    """Open a trial. A recurrence whose last trial failed is continued before another begins."""
    store = store_of(request)
    settled = store.settled(job_id)
    if settled is None:
        raise InputError(
            f"job {job_id!r} was not registered with POST /jobs, so its GPUs are not known. Register it first."
        )
    trial = job_of(request, job_id).ask(settled, lease=DAY, resume=True)
    return {"job_id": job_id, "batch_size": trial.batch_size, "trial_number": trial.number}


@routes.post("/report", dependencies=[REPORT])
def report(request: Request, body: UpstreamReport) -> dict[str, Any]:
    """Report what a trial has used. The answer says whether it must stop."""
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
    joules = max(0.0, body.energy - before.joules) if body.energy else math.nan
    used = Use(joules, max(0.0, body.time - before.seconds))
    run.feed(EpochBegan(), Measured(Kind.EPOCH, _units(so_far, body), used), EpochEnded(), Evaluated(body.metric))
    if run.outcome is None:
        if epochs and not is_alike(job.knowledge(trial).epoch, epochs[-1]):
            job.profiled(trial.batch_size, trial.ask.gpus, joules=epochs[-1].joules, seconds=epochs[-1].seconds)
        return {"stop_train": False, "converged": False, "message": f"epoch {body.current_epoch}: go on"}
    return _verdict(_end(job, trial.number, run.outcome), job.spec)


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


def _engine(job: LocalJob, trial: Trial, so_far: Outcome | None, epoch: int) -> TrialEngine:
    """The trial's engine in the state after its last report. These clients report no power limits."""
    terms = Terms.of(job.spec, CostModel(trial.ask.eta, trial.ask.max_watts), trial.decision.cost_limit)
    if (target := trial.ask.target) is not None:
        terms = replace(terms, target_metric=target.metric, higher_is_better=target.higher_is_better)
    engine = TrialEngine(terms, epochs=epoch - 1)
    if so_far is None:
        return engine
    stretches = {(one.kind, one.limit_watts, one.cold): one for one in so_far.stretches}
    # Reports say what was used since the trial began. So what was unknown in one is charged by the next.
    return replace(engine, spent=Use(so_far.joules or 0.0, so_far.seconds), stretches=stretches)


@routes.patch("/trials", dependencies=[REPORT])
def end_trial(request: Request, body: OldTrial) -> dict[str, Any]:
    """The client has ended. A trial without a report counts as crashed, any other as lost."""
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


@routes.delete("/jobs", dependencies=[ADMIN])
def forget(request: Request, job_id: Annotated[schemas.Name, Query()]) -> dict[str, Any]:
    """Remove a job with all its trials and power profiles."""
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
    """End the trial. If another request has ended it already, that result stands and is returned."""
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
