"""A service as a backend: each method sends one request."""

from __future__ import annotations

from typing import Any

from zeus.errors import NotKnown
from zeus.job import Gpus, JobSpec, Outcome, Trial
from zeus.job.wire import from_json, plain, to_json
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
        return self.service.call("GET", of_job(job_id, "/registration"), _registered, patience=patience)

    def register(self, spec: JobSpec, void: bool, patience: Patience) -> Registered:
        query = {"revise": True} if void else None
        body = {"spec": plain(spec)}
        return self.service.call("POST", "/jobs", _registered, body=body, query=query, patience=patience)

    def ask(
        self, spec: JobSpec, gpus: Gpus, recurrence: int | None, max_tries: int, key: str, patience: Patience
    ) -> tuple[Trial, Registered]:
        def read(data: Any) -> tuple[Trial, Registered]:
            now = spec if "spec" not in data else from_json(data["spec"], JobSpec)
            return _trial(data, spec.eta_knob), Registered(now, str(data.get("generation", "")))

        body = {**gpus_to_json(gpus), "recurrence": recurrence, "max_tries": max_tries}
        return self.service.call("POST", of_job(spec.id, "/ask"), read, body=body, key=key, patience=patience)

    def trial(self, spec: JobSpec, which: Which, patience: Patience) -> tuple[Trial, Outcome | None]:
        def read(data: Any) -> tuple[Trial, Outcome | None]:
            so_far = None if data["so_far"] is None else from_json(data["so_far"], Outcome)
            return _trial(data, spec.eta_knob), so_far

        path, query = of_job(spec.id, f"/trials/{which.number}"), _if_known("trial_id", which.id)
        return self.service.call("GET", path, read, query=query, patience=patience)

    def heartbeat(
        self, spec: JobSpec, which: Which, so_far: Outcome | None, next_cost: float | None, patience: Patience
    ) -> HeartbeatAnswer:
        def read(data: Any) -> HeartbeatAnswer:
            return HeartbeatAnswer(_trial(data["trial"], spec.eta_knob), bool(data["go_on"]))

        body = {"so_far": None if so_far is None else to_json(so_far), "next_cost": next_cost}
        path, query = of_job(spec.id, f"/trials/{which.number}/heartbeat"), _if_known("trial_id", which.id)
        return self.service.call("POST", path, read, body=body, query=query, patience=patience)

    def deliver(self, message: Message, spec: JobSpec | None, patience: Patience) -> Trial | None:
        eta = None if spec is None else spec.eta_knob

        def read(data: Any) -> Trial | None:
            if eta is None and data["version"] == 1:  # accepted, but a version 1 trial cannot be read without eta
                return None
            return _trial(data, eta)

        match message:
            case TrialEnded(job_id, number, outcome, trial_id):
                path, query = of_job(job_id, f"/trials/{number}/tell"), _if_known("trial_id", trial_id)
                return self.service.call("POST", path, read, body=to_json(outcome), query=query, patience=patience)
            case OfflineRun():
                path, eta = of_job(message.spec.id, "/reports"), message.spec.eta_knob
                query = None if message.life is None else {"life": message.life}
                return self.service.call("POST", path, read, body=_run(message), query=query, patience=patience)
            case EpochUsed(job_id, size, gpus, joules, seconds, life):
                body = {"batch_size": size, **gpus_to_json(gpus), "joules": joules, "seconds": seconds}
                path, query = of_job(job_id, "/profiled"), _if_known("life", life)
                self.service.call("POST", path, _nothing, body=body, query=query, patience=patience)
            case ProfileMade(key, profile):
                path, body = of_job(key.job, "/profiles"), to_json(profile)
                self.service.call("PUT", path, _nothing, body=body, query=_query(key), patience=patience)
        return None

    def knowledge(self, spec: JobSpec, trial: Trial, patience: Patience) -> Knowledge:
        path, query = of_job(spec.id, f"/trials/{trial.number}/knowledge"), _if_known("trial_id", trial.id)
        return self.service.call("GET", path, knowledge_from_json, query=query, patience=patience)

    def excuse(self, job: Registered, numbers: list[int], patience: Patience) -> None:
        path, query, body = of_job(job.spec.id, "/excuse"), _if_known("life", job.life), {"trials": numbers}
        self.service.call("POST", path, _nothing, body=body, query=query, patience=patience)

    def profile(self, key: ProfileKey, patience: Patience) -> PowerProfile | None:
        try:
            return self.service.call(
                "GET", of_job(key.job, "/profiles"), _profile, query=_query(key), patience=patience
            )
        except NotKnown:
            return None

    def profiles(self, job_id: str, patience: Patience) -> dict[ProfileKey, PowerProfile]:
        return self.service.call("GET", of_job(job_id, "/profiles/all"), _profiles, patience=patience)

    def close(self) -> None:
        self.service.close()


def _run(ran: OfflineRun) -> dict[str, Any]:
    return {
        "spec": plain(ran.spec),
        **gpus_to_json(ran.gpus),
        "batch_size": ran.batch_size,
        "key": ran.key,
        "outcome": to_json(ran.outcome),
    }


def _if_known(name: str, value: str) -> dict[str, Any] | None:
    """Query parameters with this value, if it is known."""
    return {name: value} if value else None


def _query(key: ProfileKey) -> dict[str, Any]:
    return {"batch_size": key.batch_size, "gpu_model": key.gpu_model, "gpu_count": key.gpu_count}


# ---------------------------------------------------------------------------------------------------- answers


def _nothing(data: Any) -> None:
    """For answers whose content does not matter."""


def _registered(data: Any) -> Registered:
    return Registered(from_json(data["spec"], JobSpec), str(data.get("generation", "")))


def _trial(data: Any, eta: float | None) -> Trial:
    """Read a trial. `eta` is used if the answer has none, as from a service of version 0.1."""
    body = {name: data[name] for name in data if name not in ("leased_until", "so_far", "spec", "generation")}
    return from_json(body, Trial, eta=eta)


def _profile(data: Any) -> PowerProfile:
    return from_json(data, PowerProfile)


def _profiles(data: Any) -> dict[ProfileKey, PowerProfile]:
    return {ProfileKey(**one["key"]): _profile(one["profile"]) for one in data}
