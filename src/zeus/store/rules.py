"""What may happen to a job and its trials, as pure functions, so that all stores follow the same rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from zeus.cost import Include
from zeus.errors import AlreadyDone, Forbidden, InputError, NotKnown, suggest
from zeus.job import Ask, Ending, JobSpec, Outcome, Trial, replace
from zeus.job.checks import is_unicode, need, need_job_id
from zeus.store.actor import Actor
from zeus.store.api import OWNER_LENGTH, Job, Request

MISSES = 2  # runs of each size that must miss the target before it counts as out of reach
LATELY = 100  # newest trials to search for an unfinished recurrence; older ones count as given up


def created(
    spec: JobSpec,
    policy_version: int,
    at: str,
    seed: Callable[[], int],
    generation: str,
    used: int = 0,
    owner: str = "",
) -> Job:
    """The first revision of a new job. Earlier generations used the trial numbers up to `used`."""
    need_job_id(spec.id)
    spec = replace(spec, job_id=spec.id, mab_seed=seed() if spec.mab_seed is None else spec.mab_seed)
    return Job(spec=spec, policy_version=policy_version, at=at, generation=generation, first=used + 1, owner=owner)


def revised(job: Job, spec: JobSpec, policy_version: int, at: str) -> Job:
    """The next revision of a job, or the job itself if nothing differs."""
    seed = job.spec.mab_seed if spec.mab_seed is None else spec.mab_seed
    spec = replace(spec, job_id=job.id, job_id_prefix=job.spec.job_id_prefix, mab_seed=seed)
    if not spec.command_id:  # a script that registers its job does not know the command
        spec = replace(spec, command_id=job.spec.command_id, command=job.spec.command)
    if spec == job.spec:
        return job
    return replace(
        job,
        spec=spec,
        policy_version=job.policy_version if spec.policy == job.spec.policy else policy_version,
        revision=job.revision + 1,
        at=at,
    )


def check_comparable(before: Job, after: Job, trials: Iterable[Trial]) -> AlreadyDone | None:
    """The error for a revision after which the costs of earlier trials no longer compare; None if there are none."""
    same_include, same_target = before.spec.include == after.spec.include, before.spec.target == after.spec.target
    if same_include and same_target:
        return None
    trials = list(trials)
    if trials and not same_include:
        return AlreadyDone(
            f"job {before.id!r}: its costs count the energy of {_named(before.spec.include)}, and this counts "
            f"{_named(after.spec.include)}. New costs could not be compared with those of "
            f"{len(trials)} trial{'' if len(trials) == 1 else 's'}. To change it, use `zeus run --revise` or "
            "`revise=true`. To keep comparing, use another job name."
        )
    void = sum(trial.ask.is_for(before.spec) for trial in trials)
    if not void:
        return None
    return AlreadyDone(
        f"job {before.id!r}: its target is a metric {before.spec.target}, and this is {after.spec.target}. With a new "
        f"target, {void} trial{' does' if void == 1 else 's do'} not count any more, unless the target changes back. "
        "To change it, use `zeus run --revise` or `revise=true`. To keep the trials, use another job name."
    )


def _named(include: Include) -> str:
    return " and ".join(name.upper() for name in include)


def excused(job: Job, numbers: Iterable[int], at: str, last: int) -> Job:
    """The next revision, which excuses these trials, or the job itself if it does already.

    `last` is the number of its last trial.
    """
    all_of_them = tuple(sorted({*job.excused, *numbers}))
    if unknown := [number for number in all_of_them if not job.first <= number <= last]:
        raise no_trial(job.id, unknown[0], last)
    return job if all_of_them == job.excused else replace(job, revision=job.revision + 1, at=at, excused=all_of_them)


def next_generation(
    job: Job, policy_version: int, at: str, generation: str, *, last: int, pulse: str, expected: str | None
) -> Job:
    """The first revision of the job's next generation, if its pulse is the expected one.

    `last` is the number of its last trial.
    """
    if expected not in (None, pulse):
        raise AlreadyDone(
            f"job {job.id!r} has changed since it was read, and these changes would be lost. Nothing was removed. "
            "Read or export it again."
        )
    return Job(
        spec=job.spec,
        policy_version=policy_version,
        at=at,
        generation=generation,
        first=last + 1,
        paused_by=job.paused_by,
        owner=job.owner,
    )


def paused(job: Job, by: str, at: str) -> Job:
    """The next revision, which is paused by this actor, or not paused if `by` is empty; the job if nothing changes."""
    return job if bool(job.paused_by) == bool(by) else replace(job, revision=job.revision + 1, at=at, paused_by=by)


def need_owner(owner: str) -> None:
    """Raise InputError unless it can be shown as the owner of a job. Empty: nobody."""
    need(
        len(owner) <= OWNER_LENGTH and owner.isprintable() and is_unicode(owner), "owner", owner, "a name, or TEAM/NAME"
    )


def may_give(actor: Actor, job_id: str) -> None:
    """Raise Forbidden unless this actor may say whose a job is."""
    if not actor.may_all:
        raise Forbidden(f"job {job_id!r}: only an administrator says whose a job is. Ask one.")


def differs(job: Job, after: Job) -> AlreadyDone:
    """The error for a job that is registered with another spec and must not be revised."""
    names = [name for name in JobSpec.__struct_fields__ if getattr(after.spec, name) != getattr(job.spec, name)]
    return AlreadyDone(
        f"job {job.id!r} is registered with another {', '.join(names)}. Use another id, or revise the job."
    )


def resumed(request: Request, lately: Sequence[Trial]) -> Request:
    """The request for the oldest unfinished recurrence of these trials, or for a new recurrence if there is none."""
    tries: dict[int, list[Trial]] = {}
    for trial in lately:
        tries.setdefault(trial.ask.recurrence, []).append(trial)
    for recurrence, some in sorted(tries.items()):
        over = any(one.ending in (Ending.OPEN, Ending.CONVERGED) or one.ask.last for one in some)
        if not over and some[-1].ending in (Ending.STOPPED, Ending.NOT_CONVERGED, Ending.CRASHED):
            return replace(request, recurrence=recurrence, resume=False)
    return replace(request, resume=False)


def next_ask(
    job: JobSpec,
    request: Request,
    number: int,
    recurrences: int,
    tries: Sequence[Trial],
    trial_id: str = "",
    *,
    last: bool = False,
) -> Ask:
    """The ask for a request.

    Args:
        job: The job.
        request: What the caller wants.
        number: The number of the new trial.
        recurrences: The number of the last recurrence.
        tries: The trials of the requested recurrence so far.
        trial_id: The id of the new trial.
        last: Whether its recurrence gets no further trial, as of a job that is paused.
    """
    job_id = job.id
    recurrence = recurrences + 1 if request.recurrence is None else request.recurrence
    if not 1 <= recurrence <= recurrences + 1 or (request.recurrence is not None and not tries):
        raise InputError(
            f"job {job_id!r}: recurrence {recurrence} was never begun; the last one is {recurrences}. "
            "Leave the recurrence out to begin a new one."
        )
    if any(trial.ending is Ending.CONVERGED for trial in tries):
        raise AlreadyDone(f"job {job_id!r}: recurrence {recurrence} has reached its target. Begin a new one.")
    if request.target is None and request.gpus.include != job.include:  # a run that is over says what it counted
        raise InputError(
            f"job {job_id!r} counts the energy of {_named(job.include)}, but this client counts "
            f"{_named(request.gpus.include)}. Either the job was revised or the client is too old to count the rest. "
            "Start the client again, or update it."
        )
    attempt = 1 + sum(one.ending is not Ending.LOST for one in tries)  # a loss says nothing about its batch size
    if attempt > request.max_tries:
        raise AlreadyDone(
            f"job {job_id!r}: recurrence {recurrence} has used up its {request.max_tries} "
            f"{'try' if request.max_tries == 1 else 'tries'}. Begin a new one, or raise max_tries."
        )
    return Ask(
        number=number,
        recurrence=recurrence,
        attempt=attempt,
        gpus=request.gpus,
        eta=job.eta_knob,
        last=last or attempt == request.max_tries,
        id=trial_id,
        target=request.target or job.target,
    )


def is_over(job: JobSpec, tries: Sequence[Trial]) -> bool:
    """Whether a recurrence needs no further trial: it converged, used up its trials, or cannot reach the target.

    The target counts as out of reach when each offered size has missed it twice. Lost trials do not count.
    """
    tries = [one for one in tries if one.ending is not Ending.LOST]
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


def check_trial_id(job_id: str, trial: Trial, trial_id: str) -> Trial:
    """The trial, if it has this id. An empty id, as from version 0.1, matches any.

    Raises:
        NotKnown: Another trial has this number in this store.
    """
    if trial_id and trial_id != trial.id:
        raise NotKnown(
            f"job {job_id!r}: trial {trial.number} of this store has another id. The trial you mean was asked for in "
            "another store, or before a backup was restored. Nothing was changed."
        )
    return trial


def check_generation(job: Job, generation: str) -> Job:
    """The job, if it is in this generation. An empty `generation` matches any.

    Raises:
        NotKnown: The job was reset, or removed and registered again.
    """
    if generation and generation != job.generation:
        raise NotKnown(f"job {job.id!r} was reset, or removed and registered again. This report is from before that.")
    return job


def apply_tell(job_id: str, trial: Trial, outcome: Outcome, sequence: int) -> Trial:
    """The trial after this tell; the same object if nothing changes."""
    if outcome.ending is Ending.LOST:
        return trial.lose(sequence, outcome) if trial.ending is Ending.OPEN else trial
    if trial.ended is None:
        return trial.end(sequence, outcome)
    if trial.outcome == outcome:
        return trial
    raise AlreadyDone(
        f"job {job_id!r}: trial {trial.number} already has the outcome {trial.outcome}; it was not overwritten with "
        f"{outcome}. Open another trial with ask."
    )


def check_progress(so_far: Outcome | None) -> Outcome | None:
    """What a renewal reports, checked: its ending must be LOST, as it becomes the outcome if the trial is lost."""
    if so_far is not None and so_far.ending is not Ending.LOST:
        raise InputError(f"so_far={so_far}: give ending LOST for a trial that still runs.")
    return so_far


def no_job(job_id: str, known: Sequence[str]) -> NotKnown:
    hint = suggest(job_id, known, most=3) if known else "It has no jobs yet."
    return NotKnown(f"job {job_id!r} is not in this store. {hint}")


def removed(job_id: str) -> NotKnown:
    return NotKnown(f"job {job_id!r} was removed, and this report is from before that. Register it to start again.")


def no_trial(job_id: str, number: int, last: int) -> NotKnown:
    return NotKnown(f"job {job_id!r} has no trial {number}; its last trial is {last}. Open a trial with ask.")


def already_here(job_ids: Sequence[str]) -> AlreadyDone:
    return AlreadyDone(f"already in this store: {', '.join(job_ids)}. Forget them first, or do not import them.")
