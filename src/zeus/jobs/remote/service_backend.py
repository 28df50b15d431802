"""A service as a backend: each verb is one request."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from zeus.errors import NotKnown
from zeus.job import Gpus, JobSpec, Outcome, Trial
from zeus.job.wire import from_json, to_json
from zeus.jobs.messages import EpochUsed, Message, OfflineRun, ProfileMade, TrialEnded, gpus_to_json
from zeus.jobs.remote.backend import HeartbeatAnswer, Registered, Which
from zeus.jobs.remote.client import Service, of_job
from zeus.jobs.remote.retry import Patience
from zeus.profile import PowerProfile, ProfileKey
from zeus.trial.knowledge import Knowledge, knowledge_from_json


class ServiceBackend:
    """A `Backend` over HTTP."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.address, self.contact, self.begin = service.address, service.contact, service.begin

    def find(self, job_id: str, patience: Patience) -> Registered:
        """As registered there."""
        return self.service.call("GET", of_job(job_id, "/registration"), _registered, patience=patience)

    def register(self, spec: JobSpec, void: bool, patience: Patience) -> Registered:
        """Made, found or revised there."""
        query = {"revise": True} if void else None
        body = {"spec": _plain(spec)}
        return self.service.call("POST", "/jobs", _registered, body=body, query=query, patience=patience)

    def ask(
        self, spec: JobSpec, gpus: Gpus, recurrence: int | None, max_tries: int, patience: Patience
    ) -> tuple[Trial, Registered]:
        """Under a key of its own."""

        def read(said: Any) -> tuple[Trial, Registered]:
            now = spec if "spec" not in said else from_json(said["spec"], JobSpec)
            return _trial(said, spec.eta_knob), Registered(now, str(said.get("generation", "")))

        body = {**gpus_to_json(gpus), "recurrence": recurrence, "max_tries": max_tries}
        path, key = of_job(spec.id, "/ask"), uuid4().hex
        return self.service.call("POST", path, read, body=body, key=key, patience=patience)

    def trial(self, spec: JobSpec, which: Which, patience: Patience) -> tuple[Trial, Outcome | None]:
        """As it stands there."""

        def read(said: Any) -> tuple[Trial, Outcome | None]:
            so_far = None if said["so_far"] is None else from_json(said["so_far"], Outcome)
            return _trial(said, spec.eta_knob), so_far

        path, query = of_job(spec.id, f"/trials/{which.number}"), _said("trial_id", which.id)
        return self.service.call("GET", path, read, query=query, patience=patience)

    def heartbeat(
        self, spec: JobSpec, which: Which, so_far: Outcome | None, next_cost: float | None, patience: Patience
    ) -> HeartbeatAnswer:
        """The policy's word is the service's."""

        def read(said: Any) -> HeartbeatAnswer:
            return HeartbeatAnswer(_trial(said["trial"], spec.eta_knob), bool(said["go_on"]))

        body = {"so_far": None if so_far is None else to_json(so_far), "next_cost": next_cost}
        path, query = of_job(spec.id, f"/trials/{which.number}/heartbeat"), _said("trial_id", which.id)
        return self.service.call("POST", path, read, body=body, query=query, patience=patience)

    def deliver(self, message: Message, spec: JobSpec | None, patience: Patience) -> Trial | None:
        """The request that says it."""
        eta = None if spec is None else spec.eta_knob

        def read(said: Any) -> Trial | None:
            if eta is None and said["version"] == 1:  # heard; what was heard needs an eta to be read
                return None
            return _trial(said, eta)

        match message:
            case TrialEnded(job_id, number, outcome, trial_id):
                path, query = of_job(job_id, f"/trials/{number}/tell"), _said("trial_id", trial_id)
                return self.service.call("POST", path, read, body=to_json(outcome), query=query, patience=patience)
            case OfflineRun():
                path, eta = of_job(message.spec.id, "/reports"), message.spec.eta_knob
                query = None if message.life is None else {"life": message.life}
                return self.service.call("POST", path, read, body=_run(message), query=query, patience=patience)
            case EpochUsed(job_id, size, gpus, joules, seconds, life):
                body = {"batch_size": size, **gpus_to_json(gpus), "joules": joules, "seconds": seconds}
                path, query = of_job(job_id, "/profiled"), _said("life", life)
                self.service.call("POST", path, _nothing, body=body, query=query, patience=patience)
            case ProfileMade(key, profile):
                path, body = of_job(key.job, "/profiles"), to_json(profile)
                self.service.call("PUT", path, _nothing, body=body, query=_query(key), patience=patience)
        return None

    def knowledge(self, spec: JobSpec, trial: Trial, patience: Patience) -> Knowledge:
        """Gathered there."""
        path, query = of_job(spec.id, f"/trials/{trial.number}/knowledge"), _said("trial_id", trial.id)
        return self.service.call("GET", path, knowledge_from_json, query=query, patience=patience)

    def excuse(self, job: Registered, numbers: list[int], patience: Patience) -> None:
        """A revision of the job there."""
        path, query, body = of_job(job.spec.id, "/excuse"), _said("life", job.life), {"trials": numbers}
        self.service.call("POST", path, _nothing, body=body, query=query, patience=patience)

    def profile(self, key: ProfileKey, patience: Patience) -> PowerProfile | None:
        """As kept there."""
        try:
            return self.service.call(
                "GET", of_job(key.job, "/profiles"), _profile, query=_query(key), patience=patience
            )
        except NotKnown:
            return None

    def profiles(self, job_id: str, patience: Patience) -> dict[ProfileKey, PowerProfile]:
        """All that are kept there."""
        return self.service.call("GET", of_job(job_id, "/profiles/all"), _profiles, patience=patience)

    def close(self) -> None:
        """The client's connections."""
        self.service.close()


def _plain(spec: JobSpec) -> dict[str, Any]:
    return {name: value for name, value in to_json(spec).items() if name not in ("kind", "version")}


def _run(ran: OfflineRun) -> dict[str, Any]:
    return {
        "spec": _plain(ran.spec),
        **gpus_to_json(ran.gpus),
        "batch_size": ran.batch_size,
        "key": ran.key,
        "outcome": to_json(ran.outcome),
    }


def _said(name: str, value: str) -> dict[str, Any] | None:
    """A query that says it, where it is known."""
    return {name: value} if value else None


def _query(key: ProfileKey) -> dict[str, Any]:
    return {"batch_size": key.batch_size, "gpu_model": key.gpu_model, "gpu_count": key.gpu_count}


# ---------------------------------------------------------------------------------------------------- answers


def _nothing(said: Any) -> None:
    """It is enough that there was an answer."""


def _registered(said: Any) -> Registered:
    return Registered(from_json(said["spec"], JobSpec), str(said.get("generation", "")))


def _trial(said: Any, eta: float | None) -> Trial:
    """A trial; `eta` serves where a service of version 0.1, or one behind a proxy, does not say the trial's own."""
    body = {name: said[name] for name in said if name not in ("leased_until", "so_far", "spec", "generation")}
    return from_json(body, Trial, eta=eta)


def _profile(said: Any) -> PowerProfile:
    return from_json(said, PowerProfile)


def _profiles(said: Any) -> dict[ProfileKey, PowerProfile]:
    return {ProfileKey(**one["key"]): _profile(one["profile"]) for one in said}
