"""Figure 4 as a story: pruning from the default down, up, and once more from the cheapest, then sampling."""

from __future__ import annotations

import random

from support.stories import Story, converged, job, stopped
from zeus.job import Phase

# What each size does in this story. 128 never converges below the bound; 8 does once and then fails.
COSTS = {16: 90.0, 32: 60.0, 64: 80.0}


def test_the_walk_of_figure_4() -> None:
    story = Story(job(batch_sizes=(8, 16, 32, 64, 128), default_batch_size=64))
    walked = []

    def step(recurrence: int | None, outcome_of: dict[int, str] | None = None) -> int:
        trial = story.ask(recurrence=recurrence)
        walked.append((trial.ask.recurrence, trial.batch_size, trial.decision.phase, trial.decision.cost_limit))
        failed = (outcome_of or {}).get(trial.batch_size)
        cost = {**COSTS, 8: 115.0}.get(trial.batch_size, 0.0)
        story.tell(trial, stopped(110.0) if failed else converged(cost))
        return trial.ask.recurrence

    step(None)  # 64, the default, with no bound yet
    step(None)  # down: 32
    step(None)  # 16
    step(None)  # 8, the smallest
    again = step(None, {128: "fails"})  # up: 128 fails, so that the recurrence goes on ...
    step(again)  # ... with round 2, from the cheapest
    step(None)  # 16
    again = step(None, {8: "fails"})  # 8 fails this time
    step(again)  # up: 64, the largest that is left

    first, bound = Phase.PRUNING, 2 * 60.0
    assert walked == [
        (1, 64, first, None),
        (2, 32, first, 2 * 80.0),
        (3, 16, first, bound),
        (4, 8, first, bound),
        (5, 128, first, bound),
        (5, 32, first, bound),  # min C is not touched by the 110 that 128 wasted
        (6, 16, first, bound),
        (7, 8, first, bound),
        (7, 64, first, bound),
    ]
    after = [story.ask() for _ in range(30)]
    assert {trial.decision.phase for trial in after} == {Phase.SAMPLING}
    assert {trial.batch_size for trial in after} == {32}  # equal costs: its draw is always the least
    assert story.state.side("").walk.sizes == (16, 32, 64)  # 8 and 128 have left
    assert after[0].decision.reason == "32 has the lowest of 3 sampled mean costs"


def test_the_reasons_can_be_read() -> None:
    story = Story(job())
    said = []
    for outcome in (converged(50.0), stopped(90.0), converged(40.0)):
        trial = story.ask()
        said.append(trial.decision.reason)
        story.tell(trial, outcome)
    assert said == [
        "pruning round 1 of 2 explores 16, the starting size",
        "pruning round 1 of 2 explores 8, a size below 16",
        "pruning round 1 of 2 explores 32, a size above 16",
    ]


def test_the_policy_ends_on_the_best_of_three_arms() -> None:
    """Means 100, 130 and 160 with a spread of a tenth; at the end the best arm is the favourite."""
    means = {8: 130.0, 16: 160.0, 32: 100.0}
    ended_well = 0
    for seed in range(200):
        story, luck = Story(job(), seed=seed), random.Random(f"luck {seed}")
        chosen = []
        for _ in range(40):
            trial = story.ask()
            chosen.append(trial.batch_size)
            story.tell(trial, converged(max(1.0, luck.gauss(means[trial.batch_size], 0.1 * means[trial.batch_size]))))
        ended_well += chosen[-5:].count(32) >= 3
    assert ended_well / 200 > 0.95
