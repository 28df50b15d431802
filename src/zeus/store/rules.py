"""What the verbs of a store mean, as pure functions, so that no two stores can differ in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace

from zeus.errors import AlreadyDone, InputError, NotKnown, suggest
from zeus.job import Ask, Ending, JobSpec, Outcome, Trial
from zeus.store.api import Job, Request

MISSES = 2  # runs to max_epochs of each size, after which a target counts as out of reach
LATELY = 100  # trials among which an unfinished recurrence is looked for: what failed before was given up


def created(
    spec: JobSpec, policy_version: int, at: str, seed: Callable[[], int], generation: str, used: int = 0
) -> Job:
    """The first revision; so many trial numbers were used in lives before."""
    spec = replace(spec, job_id=spec.id, mab_seed=seed() if spec.mab_seed is None else spec.mab_seed)
    return Job(spec=spec, policy_version=policy_version, at=at, generation=generation, first=used + 1)


def revised(job: Job, spec: JobSpec, policy_version: int, at: str) -> Job:
    """The job itself where nothing differs, or its next revision."""
    seed = job.spec.mab_seed if spec.mab_seed is None else spec.mab_seed
    command = spec.command_id or job.spec.command_id
    spec = replace(spec, job_id=job.id, job_id_prefix=job.spec.job_id_prefix, mab_seed=seed, command_id=command)
    if spec == job.spec:
        return job
    return replace(
        job,
        spec=spec,
        policy_version=job.policy_version if spec.policy == job.spec.policy else policy_version,
        revision=job.revision + 1,
        at=at,
    )


def voids(before: Job, after: Job, trials: Iterable[Trial]) -> AlreadyDone | None:
    """Why this revision is not made unless it is asked for: trials ran for the target that it takes away."""
    if before.spec.target == after.spec.target:
        return None
    void = sum(trial.ask.is_for(before.spec) for trial in trials)
    if not void:
        return None
    return AlreadyDone(
        f"job {before.id!r}: its target is a metric {before.spec.target}, and this is {after.spec.target}. The job "
        f"would go on without what the {void} trials for the present target taught it. If that is meant, say so "
        "(`zeus run --revise`, `revise=true`); with the present target back, they count again. Or give it another name."
    )


def excused(job: Job, numbers: Iterable[int], at: str, last: int) -> Job:
    """The job itself where these trials are excused already, or its next revision; `last` is its last trial."""
    all_of_them = tuple(sorted({*job.excused, *numbers}))
    if unknown := [number for number in all_of_them if not job.first <= number <= last]:
        raise no_trial(job.id, unknown[0], last)
    return job if all_of_them == job.excused else replace(job, revision=job.revision + 1, at=at, excused=all_of_them)


def begun_again(
    job: Job, policy_version: int, at: str, generation: str, *, last: int, pulse: str, expected: str | None
) -> Job:
    """The first revision of its next life, where its pulse is the one expected; `last` is its last trial."""
    if expected not in (None, pulse):
        raise AlreadyDone(
            f"job {job.id!r} has changed since it was looked at, and what happened would be lost. Nothing was removed; "
            "look at it again."
        )
    return Job(spec=job.spec, policy_version=policy_version, at=at, generation=generation, first=last + 1)


def differs(job: Job, after: Job) -> AlreadyDone:
    """It was registered otherwise, and is not to be revised."""
    names = [one.name for one in fields(JobSpec) if getattr(after.spec, one.name) != getattr(job.spec, one.name)]
    return AlreadyDone(
        f"job {job.id!r} is registered with another {', '.join(names)}. Register this under another id, or revise it."
    )


def resumed(request: Request, lately: Sequence[Trial]) -> Request:
    """For the oldest of these trials' recurrences whose tries all ended short of the target, or for a new one."""
    tries: dict[int, list[Trial]] = {}
    for trial in lately:
        tries.setdefault(trial.ask.recurrence, []).append(trial)
    for recurrence, some in sorted(tries.items()):
        over = any(one.ending in (Ending.OPEN, Ending.CONVERGED) or one.ask.last for one in some)
        if not over and some[-1].ending in (Ending.STOPPED, Ending.NOT_CONVERGED, Ending.CRASHED):
            return replace(request, recurrence=recurrence, resume=False)
    return replace(request, resume=False)


def next_ask(
    job: JobSpec, request: Request, number: int, recurrences: int, tries: Sequence[Trial], trial_id: str = ""
) -> Ask:
    """The ask that a request becomes: `tries` are those of its recurrence so far, `recurrences` the last one begun."""
    job_id = job.id
    recurrence = recurrences + 1 if request.recurrence is None else request.recurrence
    if not 1 <= recurrence <= recurrences + 1 or (request.recurrence is not None and not tries):
        raise InputError(
            f"job {job_id!r}: recurrence {recurrence} was never begun; the last one is {recurrences}. "
            "Name none to begin a new one."
        )
    if any(trial.ending is Ending.CONVERGED for trial in tries):
        raise AlreadyDone(f"job {job_id!r}: recurrence {recurrence} has reached its target. Begin a new one.")
    attempt = len(tries) + 1
    if attempt > request.max_tries:
        raise AlreadyDone(
            f"job {job_id!r}: recurrence {recurrence} has used up its {request.max_tries} tries. "
            "Begin a new one, or allow more."
        )
    return Ask(
        number=number,
        recurrence=recurrence,
        attempt=attempt,
        gpus=request.gpus,
        eta=job.eta_knob,
        last=attempt == request.max_tries,
        id=trial_id,
        target=request.target or job.target,
    )


def is_over(job: JobSpec, tries: Sequence[Trial]) -> bool:
    """Whether a recurrence needs no further try: it converged, its tries are used up, or the target cannot be reached.

    That is so once every size on offer has run to max_epochs twice without it.
    """
    if not tries:
        return False
    last = tries[-1]
    if last.ending is Ending.CONVERGED or last.ask.last:
        return True
    if len(tries) < 2 * len(job.batch_sizes) and job.policy != "default":
        return False
    crashed = {one.batch_size for one in tries if one.ending is Ending.CRASHED}
    offered = {job.default_batch_size} if job.policy == "default" else {*job.batch_sizes} - crashed
    missed = Counter(one.batch_size for one in tries if one.ending is Ending.NOT_CONVERGED)
    return bool(offered) and all(missed[size] >= MISSES for size in offered)


def meant(job_id: str, trial: Trial, trial_id: str) -> Trial:
    """The trial, if it is the one that is spoken of. Whoever gives no id, as version 0.1 does, means it by its number.

    Raises:
        NotKnown: Another trial has this number here.
    """
    if trial_id and trial_id != trial.id:
        raise NotKnown(
            f"job {job_id!r}: trial {trial.number} of this store is not the one that is spoken of, which was asked for "
            "in another store or before a backup was restored. Nothing was changed."
        )
    return trial


def same_life(job: Job, life: str) -> Job:
    """The job, if it is in this life; an empty one means whichever it is in.

    Raises:
        NotKnown: It was reset, or removed and made anew.
    """
    if life and life != job.generation:
        raise NotKnown(f"job {job.id!r} was reset since, or removed and made anew. What is told is of its life before.")
    return job


def told(job_id: str, trial: Trial, outcome: Outcome, sequence: int) -> Trial:
    """The trial after this tell: the very same one where nothing changes."""
    if outcome.ending is Ending.LOST:
        return trial.lose(sequence, outcome) if trial.ending is Ending.OPEN else trial
    if trial.ended is None:
        return trial.end(sequence, outcome)
    if trial.outcome == outcome:
        return trial
    raise AlreadyDone(
        f"job {job_id!r}: trial {trial.number} has already ended as {trial.outcome}, and now {outcome} is told. "
        "The first one stands; open another trial with ask."
    )


def lost(so_far: Outcome | None) -> Outcome | None:
    """What a renewal says of a trial, which must be fit to be the last that is heard of it."""
    if so_far is not None and so_far.ending is not Ending.LOST:
        raise InputError(f"so_far={so_far}: a trial that still runs has ending LOST, were it lost now.")
    return so_far


def no_job(job_id: str, known: Sequence[str]) -> NotKnown:
    """Nobody registered it."""
    hint = suggest(job_id, known, most=3) if known else "It has no jobs yet."
    return NotKnown(f"job {job_id!r} is not in this store. {hint}")


def removed(job_id: str) -> NotKnown:
    """It is not made again by what comes late."""
    return NotKnown(f"job {job_id!r} was removed. What is told is of its life before; register it to begin anew.")


def no_trial(job_id: str, number: int, last: int) -> NotKnown:
    """It was never asked for."""
    return NotKnown(f"job {job_id!r} has no trial {number}; its last one is {last}. A trial begins with ask.")


def already_here(job_ids: Sequence[str]) -> AlreadyDone:
    """An import would mix two histories."""
    return AlreadyDone(f"already in this store: {', '.join(job_ids)}. Forget them first, or leave them out.")
