"""Drawn trials as the lines of an export, with the facts that Zeus would have seen of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

import numpy as np

from savings_scripts.histories import TRIES, History, Piece, Run, total
from savings_scripts.worlds import ETA, STEPS, TARGET, TOTALS, World
from zeus.job import (
    Ask,
    Decision,
    Ending,
    EpochPoint,
    Gpus,
    JobSpec,
    Kind,
    Outcome,
    Target,
    Trial,
    TrialRecord,
    UsageSegment,
)
from zeus.store.api import Job, utc
from zeus.store.json_lines import Dump, write
from zeus.store.json_lines import History as Facts

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def job_id(world: World) -> str:
    return f"drawn-{world.number:05}"


def lines(histories: Iterable[History]) -> list[str]:
    """What `zeus jobs import` reads."""
    return write(Dump({job_id(one.world): facts(one) for one in histories}))


def facts(history: History) -> Facts:
    world = history.world
    spec = JobSpec(
        job_id=job_id(world),
        job_id_prefix=job_id(world),
        batch_sizes=world.sizes,
        default_batch_size=world.default,
        eta_knob=ETA,
        target_metric=TARGET,
        max_epochs=world.max_epochs,
        mab_seed=0,
        baseline_every=world.baseline_every,
    )
    job = Job(spec=spec, policy_version=1, revision=1, at=utc(BEGIN.timestamp()), generation="")
    return Facts([job], list(trials(history)))


def trials(history: History) -> Iterator[TrialRecord]:
    """The trials, one recurrence a day."""
    sequence, now, attempt = 0, BEGIN, 0
    for number, run in enumerate(history.runs, 1):
        begins = number == 1 or history.runs[number - 2].recurrence != run.recurrence
        attempt, now = (1, BEGIN + timedelta(days=run.recurrence)) if begins else (attempt + 1, now)
        outcome = observed(history.world, run)
        ask = Ask(
            number=number,
            recurrence=run.recurrence,
            attempt=attempt,
            gpus=Gpus(run.card.name, 1, run.card.top),
            eta=ETA,
            last=attempt == TRIES,
            id=f"{history.world.number:016x}{number:016x}",
            target=Target(TARGET),
        )
        trial = Trial(ask=ask, decision=Decision(run.size, run.phase, "drawn", run.bound), asked=sequence + 1)
        is_lost, sequence = run.ending is Ending.LOST, sequence + 2
        trial = trial.lose(sequence, outcome) if is_lost else trial.end(sequence, outcome)
        asked, now = now, now + timedelta(seconds=float(run.used[1]))
        yield TrialRecord(
            trial=trial,
            asked_at=utc(asked.timestamp()),
            changed_at=utc(now.timestamp()),
            leased_until=None,
            so_far=outcome if is_lost else None,
        )


def observed(world: World, run: Run) -> Outcome:
    """What Zeus was told of a trial, or saw of it."""
    used, count = run.used, len(run.epochs)
    seen = [joined(epoch) if world.way != STEPS else epoch for epoch in run.epochs]
    curve = [] if world.way == TOTALS or run.ending is Ending.LOST else list(points(run))
    return Outcome(
        ending=run.ending,
        joules=float(used[0]) if run.known else None,
        seconds=float(used[1]),
        epochs=count,
        metric=None if run.ending is Ending.CRASHED else metric(run, count),
        next_epoch_cost=run.next_epoch_cost,
        stretches=() if world.way == TOTALS else tuple(stretches(seen, run.known).values()),
        curve=tuple(curve),
        found_watts=None if world.way == TOTALS else run.card.top,
        set_limits=world.tuned and world.way != TOTALS,
        samples=world.steps(run.size, run.recurrence) * run.size if world.way == STEPS and count else None,
    )


def joined(epoch: list[Piece]) -> list[Piece]:
    """The epoch of a watched script: nothing is seen within it."""
    use, at_top = (np.sum(some, axis=0) for some in zip(*((one.use, one.at_top) for one in epoch), strict=True))
    return [Piece(Kind.EPOCH, epoch[0].limit, 1, use, at_top)]


def stretches(epochs: list[list[Piece]], known: bool) -> dict[tuple[Kind, float, bool], UsageSegment]:
    found: dict[tuple[Kind, float, bool], UsageSegment] = {}
    for place, epoch in enumerate(epochs):
        for one in epoch:
            key, joules = (one.kind, one.limit, place == 0), float(one.use[0]) if known else None
            stretch = UsageSegment.of(*key, one.count, joules, float(one.use[1]))
            found[key] = found[key] + stretch if key in found else stretch
    return found


def points(run: Run) -> Iterator[EpochPoint]:
    for number, epoch in enumerate(run.epochs, 1):
        joules, seconds = total([one.use for one in epoch])
        limits = {one.limit for one in epoch if one.kind is not Kind.EVALUATION}
        limit = limits.pop() if len(limits) == 1 else None
        yield EpochPoint(number, metric(run, number), float(joules) if run.known else None, float(seconds), limit)


def metric(run: Run, epoch: int) -> float:
    """Rises to the target where that was reached."""
    return TARGET * (epoch / (len(run.epochs) + (run.ending is not Ending.CONVERGED)))
