"""A recurring job over a service: the same verbs as over a store, and a training that does not need it to be there.

    the service is away    a run that begins takes the default batch size, with no bound
                           a run that goes on hears its own cost limit
                           what is told waits on disk, and is delivered at the next contact

A trial that began without the service has a number that the service never gives; it is known there, as a recurrence of
its own, once its report has arrived.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import uuid4

from zeus.cost import fits
from zeus.errors import NotKnown, StoreError
from zeus.job import MAX_TRIES, Ask, Decision, Gpus, JobSpec, Outcome, Phase, Trial
from zeus.optimizer.batch_size.http import QUICK, SOON, of_job
from zeus.optimizer.batch_size.known import Mine
from zeus.optimizer.batch_size.post import Post
from zeus.optimizer.batch_size.spool import Report
from zeus.optimizer.batch_size.verbs import ALONE
from zeus.optimizer.power_limit.profiles import nearest
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.rules import lost, told
from zeus.trial.estimate import Knowledge
from zeus.wire import from_json, knowledge_from_json, to_json

log = logging.getLogger(__name__)

SEEDS = 2**31


class RemoteJob:
    """A `RecurringJob` over a service."""

    def __init__(self, post: Post, spec: JobSpec, *, is_registered: bool, life: str = "") -> None:
        self._post = post
        self._spec = spec
        self.life = life
        self._is_registered = is_registered  # as far as is known here
        self._later: list[Report] = []  # for when it is

    @classmethod
    def find(cls, post: Post, job_id: str) -> RemoteJob:
        """A job that is registered there, or is known here and cannot be yet."""
        seen = post.known.spec(job_id)
        patience = post.service.begin if seen is None else SOON
        try:
            spec, life = post.call("GET", of_job(job_id, "/registration"), _registration, patience=patience)
        except (StoreError, NotKnown) as away:
            if seen is None or (isinstance(away, NotKnown) and not post.known.runs_alone(job_id)):
                raise
            return cls(post, seen, is_registered=False)
        post.known.keep_spec(spec)
        return cls(post, spec, is_registered=True, life=life)

    @classmethod
    def register(cls, post: Post, spec: JobSpec) -> RemoteJob:
        """The job of this spec, made or revised; where the service is away, when it is back."""
        job = cls(post, spec, is_registered=False)
        try:
            job._register()
        except StoreError as away:
            log.warning("%s Until it is back, job %r runs with its default batch size.", away, spec.id)
            job._spec = _filled(spec, post.known.spec(spec.id))
            post.known.keep_spec(job._spec)
        return job

    def _register(self) -> None:
        body = {"spec": _plain(self._spec)}
        patience = self._post.service.begin
        self._spec, self.life = self._post.call("POST", "/jobs", _registration, body=body, patience=patience)
        self._is_registered = True
        self._post.known.keep_spec(self._spec)

    @property
    def spec(self) -> JobSpec:
        """As registered, as far as the service could be asked."""
        return self._spec

    # ------------------------------------------------------------------ beginning

    def ask(self, gpus: Gpus, recurrence: int | None = None, max_tries: int = MAX_TRIES) -> Trial:
        """A trial that the service opens; one of the default batch size where it is away."""
        known = recurrence if recurrence is None or recurrence < ALONE else None
        body = {**_place(gpus), "recurrence": known, "max_tries": max_tries}
        try:
            if not self._is_registered:
                self._register()
            path, patience = self._path("/ask"), self._post.service.begin
            trial, spec = self._post.call("POST", path, self._asked, body=body, key=uuid4().hex, patience=patience)
            self._spec = spec or self._spec
        except StoreError as away:
            trial = self._begin_alone(gpus, recurrence)
            if self._is_registered:  # else it was said
                log.warning("%s This trial takes the default batch size, %s.", away, trial.batch_size)
            return trial
        try:
            self._post.known.keep(self._spec.id, Mine(trial))
        except StoreError as wrong:
            log.debug("trial %s needs the service until its end: %s", trial.number, wrong)
        return trial

    def _begin_alone(self, gpus: Gpus, recurrence: int | None) -> Trial:
        """Its recurrence has no other try: the default with no bound ends it as well as can be."""
        number, size = ALONE + secrets.randbelow(ALONE), self._spec.default_batch_size
        ask = Ask(number=number, recurrence=recurrence or number, gpus=gpus, eta=self._spec.eta_knob, last=True)
        decision = Decision(size, Phase.DEFAULT, f"{size}, the default: the service is away")
        trial = Trial(ask=ask, decision=decision, asked=1)
        self._post.known.keep(self._spec.id, Mine(trial, key=uuid4().hex))
        return trial

    # ------------------------------------------------------------------ on the way

    def trial(self, number: int) -> Trial:
        """As it stands."""
        mine = self._mine(number)
        if mine is not None and (number >= ALONE or mine.trial.ended is not None):
            return mine.trial
        try:
            return self._post.call("GET", self._path(f"/trials/{number}"), self._told)
        except StoreError:
            if mine is None:
                raise
            return mine.trial

    def so_far(self, number: int) -> Outcome | None:
        """As last renewed."""
        mine = self._mine(number)
        if mine is not None and number >= ALONE:
            return mine.so_far
        try:
            return self._post.call("GET", self._path(f"/trials/{number}"), _so_far, patience=QUICK)
        except StoreError:
            if mine is None:
                raise
            return mine.so_far

    def renew(self, number: int, so_far: Outcome | None = None) -> Trial:
        """Hold on to it; where the service is away, the next renewal may reach it."""
        said = self._heartbeat(number, so_far)
        return said.trial if isinstance(said, Mine) else self._told(said["trial"])

    def progress(self, number: int, so_far: Outcome, next_cost: float) -> bool:
        """The policy's word; where the service is away, that of the trial's own bound."""
        said = self._heartbeat(number, so_far, next_cost)
        return fits(next_cost, said.trial.decision.cost_limit) if isinstance(said, Mine) else said["go_on"]

    def _heartbeat(self, number: int, so_far: Outcome | None, next_cost: float | None = None) -> Mine | dict[str, Any]:
        """What the service says, or else what is known here."""
        lost(so_far)
        mine, path = self._mine(number), self._path(f"/trials/{number}/heartbeat")
        if mine is None or number < ALONE:
            body = {"so_far": None if so_far is None else to_json(so_far), "next_cost": next_cost}
            try:
                return self._post.call("POST", path, _pulse, body=body, patience=QUICK)
            except StoreError:
                if mine is None:
                    raise
        if so_far is not None and mine.trial.outcome is None:
            mine = replace(mine, so_far=so_far)
            self._post.known.keep(self._spec.id, mine)
        return mine

    # ------------------------------------------------------------------ the end

    def tell(self, number: int, outcome: Outcome) -> Trial:
        """How it ended; delivered later where the service is away.

        Raises:
            StoreError: The service is away, and either nothing can be written here or the trial is another machine's,
                so that all that can be said of it is that its report waits.
        """
        mine = self._mine(number)
        after = None if mine is None else told(self._spec.id, mine.trial, outcome, mine.trial.sequence + 1)
        if mine is not None and after is mine.trial:  # it was told before
            return after
        heard = self._post.send(self._end(number, mine, outcome), self._told)
        self._flush()
        if heard is not None and number < ALONE:
            return heard
        if heard is None:
            waits = "how trial %s ended waits in %s for the next contact with the service %s."
            log.warning(waits, number, self._post.spool.folder, self._post.service.address)
        if mine is None or after is None:
            raise StoreError(f"how trial {number} ended waits in {self._post.spool.folder} for the service.")
        self._post.known.keep(self._spec.id, replace(mine, trial=after))
        return after

    def _end(self, number: int, mine: Mine | None, outcome: Outcome) -> Report:
        if mine is None or mine.key is None:
            path = self._path(f"/trials/{number}/tell")
            return Report("POST", path, to_json(outcome), trial=(self._spec.id, number))
        body = {
            "spec": _plain(self._spec),
            **_place(mine.trial.ask.gpus),
            "batch_size": mine.trial.batch_size,
            "key": mine.key,
            "outcome": to_json(outcome),
        }
        return Report("POST", self._path("/reports"), body)

    # ------------------------------------------------------------------ what is learnt besides

    def profiled(self, batch_size: int, gpus: Gpus, *, joules: float, seconds: float) -> None:
        """What an epoch uses; said after the end of the trial where the job may not be registered yet."""
        body = {"batch_size": batch_size, **_place(gpus), "joules": joules, "seconds": seconds}
        report = Report("POST", self._path("/profiled"), body)
        if self._is_registered:
            self._post.send(report, _anything, QUICK)
        else:
            self._later.append(report)

    def knowledge(self, trial: Trial) -> Knowledge:
        """Gathered there; nothing where the service is away, so that the trial's own epochs tell."""
        try:
            path = self._path(f"/trials/{trial.number}/knowledge")
            return self._post.call("GET", path, knowledge_from_json, patience=QUICK)
        except (NotKnown, StoreError):
            return Knowledge()

    def excuse(self, numbers: Iterable[int]) -> None:
        """A revision of the job there."""
        body = {"trials": list(numbers)}
        self._post.call("POST", self._path("/excuse"), _anything, body=body, patience=SOON)

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of exactly this key; None where the service is away, so that it is measured again."""
        try:
            return self._post.call("GET", of_job(key.job, "/profiles"), _profile, query=_query(key), patience=QUICK)
        except (NotKnown, StoreError):
            return None

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """Of the job's other sizes; None where the service is away."""
        try:
            known = self._post.call("GET", of_job(key.job, "/profiles/all"), _profiles, patience=QUICK)
        except (NotKnown, StoreError):
            return None
        sizes = [one.batch_size for one in known if replace(one, batch_size=key.batch_size) == key]
        found = nearest(key, set(sizes) & set(self._spec.batch_sizes))
        return known[replace(key, batch_size=found[0])] if found else None

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Keep a profile; later where the service is away."""
        self._post.send(Report("PUT", of_job(key.job, "/profiles"), to_json(profile), _query(key)), _anything, QUICK)

    # ------------------------------------------------------------------ inside

    def _asked(self, said: Any) -> tuple[Trial, JobSpec | None]:
        return self._told(said), None if "spec" not in said else from_json(said["spec"], JobSpec)

    def _told(self, said: Any) -> Trial:
        return _trial(said, self._spec.eta_knob)

    def _path(self, rest: str) -> str:
        return of_job(self._spec.id, rest)

    def _mine(self, number: int) -> Mine | None:
        return self._post.known.trial(self._spec.id, number)

    def _flush(self) -> None:
        later, self._later = self._later, []
        for report in later:
            self._post.send(report, _anything, QUICK)


def _filled(spec: JobSpec, seen: JobSpec | None) -> JobSpec:
    """With an id and a seed, as the service would have it."""
    seed = spec.mab_seed
    if seed is None:
        seed = secrets.randbelow(SEEDS) if seen is None else seen.mab_seed
    return replace(spec, job_id=spec.id, mab_seed=seed)


def _plain(spec: JobSpec) -> dict[str, Any]:
    return {name: value for name, value in to_json(spec).items() if name not in ("kind", "version")}


def _place(gpus: Gpus) -> dict[str, Any]:
    return {"gpu_name": gpus.model, "gpus": gpus.count, "max_watts": gpus.max_watts}


def _query(key: ProfileKey) -> dict[str, Any]:
    return {"batch_size": key.batch_size, "gpu_model": key.gpu_model, "gpu_count": key.gpu_count}


# ---------------------------------------------------------------------------------------------------- answers


def _anything(said: Any) -> bool:
    return True


def _registration(said: Any) -> tuple[JobSpec, str]:
    return from_json(said["spec"], JobSpec), str(said.get("generation", ""))


def _trial(said: Any, eta: float) -> Trial:
    """A trial; `eta` serves where a service of version 0.1, or one behind a proxy, does not say the trial's own."""
    body = {name: said[name] for name in said if name not in ("leased_until", "so_far", "spec")}
    return from_json(body, Trial, eta=eta)


def _so_far(said: Any) -> Outcome | None:
    return None if said["so_far"] is None else from_json(said["so_far"], Outcome)


def _pulse(said: Any) -> dict[str, Any]:
    return {"trial": dict(said["trial"]), "go_on": bool(said["go_on"])}


def _profile(said: Any) -> PowerProfile:
    return from_json(said, PowerProfile)


def _profiles(said: Any) -> dict[ProfileKey, PowerProfile]:
    return {ProfileKey(**one["key"]): _profile(one["profile"]) for one in said}
