"""A recurring job over a service: the same verbs as over a store, and a training that does not need it to be there.

While the service is away, a run that begins takes the default batch size with no bound, a run that goes on hears its
own cost limit, and whatever is told waits on disk (`spool`) until the next contact.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from typing import Any
from uuid import uuid4

from zeus.errors import StoreError
from zeus.job import MAX_TRIES, Ask, Decision, Ending, JobSpec, Outcome, Phase, Trial
from zeus.optimizer.batch_size.http import Service, of_job
from zeus.optimizer.batch_size.spool import Spool, default_folder
from zeus.optimizer.batch_size.verbs import Place
from zeus.profile import PowerProfile, ProfileKey
from zeus.wire import from_json, to_json

log = logging.getLogger(__name__)

QUICK = 3.0  # seconds of patience for what may as well be delivered later
OFFLINE = 2**40  # trials that began without the service are numbered from here, by chance


class RemoteJob:
    """A `RecurringJob` over a service."""

    def __init__(self, service: Service, spec: JobSpec, spool: Spool | None = None) -> None:
        self._service = service
        self._spec = spec
        self._spool = spool or Spool(default_folder(service.address))

    @classmethod
    def find(cls, service: Service, job_id: str, spool: Spool | None = None) -> RemoteJob:
        """A job that is registered there."""
        found = service.call("GET", of_job(job_id, "/registration"))
        return cls(service, _spec(found["spec"]), spool)

    @classmethod
    def register(cls, service: Service, spec: JobSpec, spool: Spool | None = None) -> RemoteJob:
        """The job of this spec, made or revised; where the service is away, taken as given."""
        job = cls(service, spec, spool)
        try:
            job._deliver()
            job._spec = _spec(service.call("POST", "/jobs", body={"spec": _plain(spec)})["spec"])
        except StoreError as away:
            log.warning("%s The run goes on with the default batch size, and is reported later.", away)
            job._spec = replace(spec, job_id=spec.id)
        return job

    @property
    def spec(self) -> JobSpec:
        """As registered, as far as the service could be asked."""
        return self._spec

    @property
    def id(self) -> str:
        """What it is found by."""
        return self._spec.id

    # ------------------------------------------------------------------ the verbs

    def ask(self, place: Place, recurrence: int | None = None, max_tries: int = MAX_TRIES) -> Trial:
        """A trial that the service opens; one of the default batch size where it is away."""
        body = {
            "gpu_name": place.gpu_name,
            "gpus": place.gpus,
            "max_watts": place.max_watts,
            "recurrence": recurrence if recurrence is None or recurrence < OFFLINE else None,
            "max_tries": max_tries,
        }
        try:
            self._deliver()
            return from_json(self._service.call("POST", of_job(self.id, "/ask"), body=body, key=uuid4().hex), Trial)
        except StoreError as away:
            log.warning("%s This trial takes the default batch size, %s.", away, self._spec.default_batch_size)
            return self._begin_alone(place, recurrence)

    def _begin_alone(self, place: Place, recurrence: int | None) -> Trial:
        number = OFFLINE + secrets.randbelow(OFFLINE)
        ask = Ask(
            number=number,
            recurrence=recurrence or number,
            gpu_model=place.model,
            max_watts=place.max_watts,
            last=True,
        )
        size = self._spec.default_batch_size
        decision = Decision(size, Phase.DEFAULT, f"{size}, the default: the service is away")
        trial = Trial(ask=ask, decision=decision, asked=1)
        kept = {"trial": to_json(trial), "key": uuid4().hex, "spec": _plain(self._spec)}
        self._spool.keep_trial(number, {**kept, "gpu_name": place.gpu_name, "gpus": place.gpus})
        return trial

    def trial(self, number: int) -> Trial:
        """As it stands, as far as can be known."""
        if (alone := self._spool.trial(number)) is not None:
            return from_json(alone["trial"], Trial)
        return from_json(_without(self._service.call("GET", of_job(self.id, f"/trials/{number}"))), Trial)

    def so_far(self, number: int) -> Outcome | None:
        """As last renewed."""
        if self._spool.trial(number) is not None:
            return None
        try:
            told = self._service.call("GET", of_job(self.id, f"/trials/{number}"), patience=QUICK)["so_far"]
        except StoreError:
            return None
        return None if told is None else from_json(told, Outcome)

    def renew(self, number: int, so_far: Outcome | None = None) -> Trial:
        """Hold on to it. Raises StoreError where the service is away: the next renewal may reach it."""
        if (alone := self._spool.trial(number)) is not None:
            return from_json(alone["trial"], Trial)
        body = {"so_far": None if so_far is None else to_json(so_far)}
        return from_json(self._heartbeat(number, body)["trial"], Trial)

    def progress(self, number: int, so_far: Outcome, next_cost: float) -> bool:
        """The policy's word. Raises StoreError where the service is away: then the trial's own bound counts."""
        if self._spool.trial(number) is not None:
            return so_far.epochs < self._spec.max_epochs  # the default size, with no bound
        go_on: bool = self._heartbeat(number, {"so_far": to_json(so_far), "next_cost": next_cost})["go_on"]
        return go_on

    def _heartbeat(self, number: int, body: dict[str, Any]) -> Any:
        self._deliver()
        return self._service.call("POST", of_job(self.id, f"/trials/{number}/heartbeat"), body=body, patience=QUICK)

    def tell(self, number: int, outcome: Outcome) -> Trial:
        """How it ended; kept for later where the service is away."""
        if (alone := self._spool.trial(number)) is not None:
            return self._tell_alone(number, alone, outcome)
        path, body = of_job(self.id, f"/trials/{number}/tell"), to_json(outcome)
        try:
            self._deliver()
            return from_json(self._service.call("POST", path, body=body), Trial)
        except StoreError as away:
            self._spool.put("POST", path, body)
            log.warning("%s How trial %s ended is kept in %s until then.", away, number, self._spool.folder)
            return self._supposed(number, outcome)

    def _tell_alone(self, number: int, alone: dict[str, Any], outcome: Outcome) -> Trial:
        trial = from_json(alone["trial"], Trial)
        if trial.ending is not Ending.OPEN:
            return trial
        ended = trial.lose(2, outcome) if outcome.ending is Ending.LOST else trial.end(2, outcome)
        self._spool.keep_trial(number, {**alone, "trial": to_json(ended)})
        if outcome.ending is not Ending.LOST:
            body = {
                "spec": alone["spec"],
                "gpu_name": alone["gpu_name"],
                "gpus": alone["gpus"],
                "max_watts": trial.ask.max_watts,
                "batch_size": trial.batch_size,
                "key": alone["key"],
                "outcome": to_json(outcome),
            }
            self._spool.put("POST", of_job(self.id, "/reports"), body)
            self._deliver()
        return ended

    def _supposed(self, number: int, outcome: Outcome) -> Trial:
        """The trial as the service will have it, for a caller that goes on."""
        ask = Ask(number=number, recurrence=1, max_watts=1.0, last=True)
        size = self._spec.default_batch_size
        trial = Trial(ask=ask, decision=Decision(size, Phase.DEFAULT, "as far as is known here"), asked=1)
        return trial.lose(2, outcome) if outcome.ending is Ending.LOST else trial.end(2, outcome)

    def profiled(self, batch_size: int, place: Place, *, joules: float, seconds: float) -> None:
        """What an epoch uses; kept for later where the service is away."""
        told = {"batch_size": batch_size, "gpu_name": place.gpu_name, "gpus": place.gpus, "max_watts": place.max_watts}
        self._send("POST", of_job(self.id, "/profiled"), {**told, "joules": joules, "seconds": seconds})

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of exactly this key; None where the service is away, so that it is measured again."""
        from zeus.errors import NotKnown

        try:
            found = self._service.call("GET", of_job(key.job, "/profiles"), query=_query(key), patience=QUICK)
        except (NotKnown, StoreError):
            return None
        return from_json(found, PowerProfile)

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Keep a profile; later where the service is away."""
        self._send("PUT", of_job(key.job, "/profiles"), to_json(profile), _query(key))

    # ------------------------------------------------------------------ what waits

    def _send(self, method: str, path: str, body: Any, query: dict[str, Any] | None = None) -> None:
        try:
            self._service.call(method, path, body=body, query=query, patience=QUICK)
        except StoreError:
            self._spool.put(method, path, body, query)

    def _deliver(self) -> None:
        self._spool.deliver(lambda method, path, **rest: self._service.call(method, path, patience=QUICK, **rest))


def _query(key: ProfileKey) -> dict[str, Any]:
    return {"batch_size": key.batch_size, "gpu_model": key.gpu_model, "gpu_count": key.gpu_count}


def _plain(spec: JobSpec) -> dict[str, Any]:
    return {name: value for name, value in to_json(spec).items() if name not in ("kind", "version")}


def _spec(data: dict[str, Any]) -> JobSpec:
    return from_json({"kind": "job", "version": 1, **data}, JobSpec)


def _without(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name not in ("leased_until", "so_far")}
