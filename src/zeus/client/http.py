"""The jobs of a service: each method sends one request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from zeus.client.api import WHOLE, EpochUsed, Excerpt, Heartbeat, Json, OfflineRun, Registered, TrialLog, TrialRef
from zeus.client.bodies import gpus_json, read_body, registered_from, trial_from
from zeus.client.connection import Connection, of_job
from zeus.client.origin import header, here
from zeus.errors import NotKnown
from zeus.job import MAX_TRIES, Gpus, JobSpec, Outcome, Trial, TrialRecord
from zeus.job.wire import from_json, read, to_json
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.api import LEASE_SECONDS
from zeus.store.trial_logs import last_lines
from zeus.trial.knowledge import Knowledge

T = TypeVar("T")
PAGE, TRIALS = 500, 1000  # briefs in one request, and trials


class HttpJobs:
    """A `JobsApi` over HTTP. The JSON that `/api/v1` answers is returned unchanged where it is for people."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.address = connection.address
        self._call = connection.call

    # ------------------------------------------------------------------ a job and its trials

    def register(self, spec: JobSpec, *, void: bool = False) -> Registered:
        query = {"revise": True} if void else None
        return self._call("POST", "/jobs", registered_from, body={"spec": to_json(spec)}, query=query)

    def find(self, job_id: str) -> Registered:
        return self._call("GET", of_job(job_id, "/registration"), registered_from)

    def ask(
        self,
        job_id: str,
        gpus: Gpus,
        recurrence: int | None = None,
        max_tries: int = MAX_TRIES,
        *,
        key: str | None = None,
    ) -> tuple[Trial, Registered]:
        def opened(data: Json) -> tuple[Trial, Registered]:
            return trial_from(data), registered_from(data)

        body = {**gpus_json(gpus), "recurrence": recurrence, "max_tries": max_tries}
        return self._call("POST", of_job(job_id, "/ask"), opened, body=body, key=key, headers=header(here()))

    def trial(self, ref: TrialRef) -> TrialRecord:
        def record(data: Json) -> TrialRecord:
            so_far = None if data["so_far"] is None else read_body(data["so_far"], Outcome)
            return TrialRecord(
                trial=trial_from(data),
                asked_at=str(data.get("asked_at", "")),
                changed_at=str(data.get("changed_at", "")),
                leased_until=data["leased_until"],
                so_far=so_far,
            )

        return self._call("GET", _trial(ref), record, query=_id(ref))

    def heartbeat(
        self,
        ref: TrialRef,
        so_far: Outcome | None = None,
        next_cost: float | None = None,
        *,
        lease: float = LEASE_SECONDS,
    ) -> Heartbeat:
        """As in `JobsApi`, but the service decides how long a lease lasts."""

        def answer(data: Json) -> Heartbeat:
            return Heartbeat(trial_from(data["trial"]), bool(data["go_on"]))

        body = {"so_far": None if so_far is None else to_json(so_far), "next_cost": next_cost}
        return self._call("POST", _trial(ref, "/heartbeat"), answer, body=body, query=_id(ref))

    def tell(self, ref: TrialRef, outcome: Outcome) -> Trial:
        return self._call("POST", _trial(ref, "/tell"), trial_from, body=to_json(outcome), query=_id(ref))

    def record_run(self, run: OfflineRun) -> Trial:
        body = {
            "spec": to_json(run.spec),
            **gpus_json(run.gpus),
            "batch_size": run.batch_size,
            "key": run.key,
            "outcome": to_json(run.outcome),
        }
        query = None if run.generation is None else {"life": run.generation}
        by = header(run.origin or here())
        return self._call("POST", of_job(run.spec.id, "/reports"), trial_from, body=body, query=query, headers=by)

    def profiled(self, used: EpochUsed) -> None:
        use = {"batch_size": used.batch_size, "joules": used.joules, "seconds": used.seconds}
        path, query = of_job(used.job_id, "/profiled"), _if_known("life", used.generation)
        self._call("POST", path, _nothing, body={**gpus_json(used.gpus), **use}, query=query)

    def knowledge(self, job_id: str, trial: Trial) -> Knowledge:
        path = of_job(job_id, f"/trials/{trial.number}/knowledge")
        return self._call("GET", path, lambda data: read(data, Knowledge), query=_if_known("trial_id", trial.id))

    def keep_log(self, log: TrialLog, *, is_last: bool = False) -> None:
        ref = TrialRef(log.job_id, log.number, log.trial_id)
        self._call("PUT", _trial(ref, "/log"), _nothing, body={"text": last_lines(log.text)}, query=_id(ref))

    def excuse(self, job_id: str, numbers: Iterable[int], *, generation: str = "") -> None:
        body = {"trials": list(numbers)}
        self._call("POST", of_job(job_id, "/excuse"), _nothing, body=body, query=_if_known("life", generation))

    def profile(self, key: ProfileKey) -> PowerProfile | None:
        try:
            return self._call("GET", of_job(key.job, "/profiles"), _profile, query=_key(key))
        except NotKnown:
            return None

    def profiles(self, job_id: str) -> dict[ProfileKey, PowerProfile]:
        def each(data: list[Json]) -> dict[ProfileKey, PowerProfile]:
            return {read(one["key"], ProfileKey): _profile(one["profile"]) for one in data}

        return self._call("GET", of_job(job_id, "/profiles/all"), each)

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        self._call("PUT", of_job(key.job, "/profiles"), _nothing, body=to_json(profile), query=_key(key))

    # ------------------------------------------------------------------ for `zeus jobs`

    def briefs(self) -> list[Json]:
        rows: list[Json] = []
        while True:
            query = {"offset": len(rows), "limit": PAGE}
            page = self._call("GET", "/jobs", lambda data: list(data["jobs"]), query=query)
            rows += page
            if len(page) < PAGE:
                return rows

    def full(self, job_id: str, excerpt: Excerpt = WHOLE) -> Json:
        query = {name: value for name, value in excerpt._asdict().items() if value != getattr(WHOLE, name)}
        return self._call("GET", of_job(job_id), dict, query=query or None)

    def trials(self, job_id: str, *, newest: int | None = None) -> list[Json]:
        rows: list[Json] = []
        while newest is None or len(rows) < newest:
            limit = TRIALS if newest is None else min(TRIALS, newest - len(rows))
            query = {"newest": True, "offset": len(rows), "limit": limit, "curves": False}
            page = self._call("GET", of_job(job_id, "/trials"), lambda data: list(data["trials"]), query=query)
            rows += page
            if len(page) < limit:
                break
        return rows[::-1]

    def told_log(self, job_id: str, number: int) -> Json:
        return self._call("GET", of_job(job_id, f"/trials/{number}/log"), dict)

    def export(self, job_ids: Iterable[str]) -> list[str]:
        return self._call("GET", "/export", str.splitlines, query={"job": list(job_ids)})

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        body = "".join(f"{line.rstrip()}\n" for line in lines)
        return self._call("POST", "/import", lambda data: list(data["jobs"]), body=body)

    def forget(self, job_id: str) -> None:
        self._call("DELETE", of_job(job_id), _nothing)

    def pulse(self) -> dict[str, str]:
        return self._call("GET", "/pulse", dict)

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        self._call("POST", of_job(job_id, "/reset"), _nothing, body={"pulse": pulse})

    def pardon(self, job_id: str, batch_size: int) -> None:
        self._call("POST", of_job(job_id, "/pardon"), _nothing, body={"batch_size": batch_size})

    def fleet(self, weeks: int, last: str = "") -> Json:
        return self._call("GET", "/fleet", dict, query={"weeks": weeks, **({"last": last} if last else {})})

    def pause(self, job_id: str, *, paused: bool = True) -> None:
        self._call("PATCH", of_job(job_id), _nothing, body={"paused": paused})

    def audit(self, job_id: str, *, after: int = 0, most: int = 100) -> Json:
        return self._call("GET", of_job(job_id, "/audit"), dict, query={"offset": after, "limit": most})

    def close(self) -> None:
        self.connection.close()


def _trial(ref: TrialRef, rest: str = "") -> str:
    return of_job(ref.job_id, f"/trials/{ref.number}{rest}")


def _id(ref: TrialRef) -> Mapping[str, Any] | None:
    return _if_known("trial_id", ref.id)


def _if_known(name: str, value: str) -> Mapping[str, Any] | None:
    """Query parameters with this value, if it is known."""
    return {name: value} if value else None


def _key(key: ProfileKey) -> Mapping[str, Any]:
    return {"batch_size": key.batch_size, "gpu_model": key.gpu_model, "gpu_count": key.gpu_count}


def _nothing(data: Any) -> None:
    """For answers whose content does not matter."""


def _profile(data: Any) -> PowerProfile:
    return from_json(data, PowerProfile)
