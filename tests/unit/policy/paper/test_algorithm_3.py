"""Algorithm 3, written down once more from the paper alone, makes the same decisions as the policy.

The paper leaves open what a failed run teaches and what the bound is measured over. There the model follows
docs/decisions.md#tries-and-bound and docs/decisions.md#what-a-run-teaches.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from collections.abc import Generator

import pytest

from support.stories import Story, job, stopped
from support.stories import converged as reached
from zeus.job import MAX_TRIES, Decision
from zeus.policy.random_stream import Stream

RECURRENCES = 60


class World:
    """Batch sizes that cost what they cost. Some never reach the target."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.sizes = sorted(chance.sample([8, 16, 32, 64, 128, 256, 512], chance.randint(2, 7)))
        self.default = chance.choice(self.sizes)
        best = chance.choice(self.sizes)
        self.costs = {b: 100 * (1 + abs(math.log2(b / best)) * chance.uniform(0.05, 0.6)) for b in self.sizes}
        self.fails = {b for b in self.sizes if b not in (best, self.default) and chance.random() < 0.25}
        self.chance = chance

    def run(self, size: int, bound: float) -> tuple[bool, float]:
        """Whether a run reached the target, and its cost. It ends at its bound."""
        cost = self.costs[size] * self.chance.gauss(1, 0.1)
        if size in self.fails:
            cost *= 4
        return size not in self.fails and cost <= bound, min(cost, bound)


class Model:
    """Algorithms 1 to 3. `decisions` yields (batch size, bound) and is sent (converged, cost)."""

    def __init__(self, sizes: list[int], default: int, beta: float, window: int, seed: int) -> None:
        self.sizes, self.default, self.beta, self.seed = sizes, default, beta, seed
        self.observed = {b: deque[float](maxlen=window or None) for b in sizes}
        self.recurrences = deque[float](maxlen=window or None)
        self.asks = 1  # the number of the next trial, which has random numbers of its own

    @property
    def bound(self) -> float:
        return self.beta * min(self.recurrences, default=math.inf)

    def decisions(self) -> Generator[int, tuple[bool, float], None]:
        cheapest: dict[int, float] = {}
        for _ in range(2):  # lines 2 to 9
            converged = []
            down = [b for b in reversed(self.sizes) if b < self.default]
            for way in ([self.default], down, [b for b in self.sizes if b > self.default]):
                for b in way:  # lines 3, 4 and 5
                    ok, cost = yield b
                    if not ok:
                        break
                    converged.append(b)
                    cheapest[b] = min(cost, cheapest.get(b, math.inf))
                    self.observed[b].append(cost)
            self.sizes = sorted(converged) or [b for b in self.sizes if b in cheapest]  # line 6
            self.default = min(self.sizes, key=lambda b: cheapest[b])  # line 7
        while True:  # lines 10 to 15
            size = self.predict()
            bound = self.bound
            ok, cost = yield size
            self.observed[size].append(cost if ok else max(cost, bound))

    def predict(self) -> int:
        """Algorithm 1, with the beliefs of Algorithm 2 and a flat prior."""
        rng = Stream(self.seed, self.asks)
        draws = {}
        for b in self.sizes:
            costs = self.observed[b]
            deviation = math.sqrt(statistics.pvariance(costs) / len(costs))
            draws[b] = rng.gauss(statistics.fmean(costs), deviation) if deviation else statistics.fmean(costs)
        return min(draws, key=lambda b: draws[b])


@pytest.mark.parametrize("beta", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("window", [0, 3, 10])
@pytest.mark.parametrize("seed", range(20))
def test_the_policy_decides_as_the_paper_writes(beta: float, window: int, seed: int) -> None:
    world = World(seed)
    spec = job(batch_sizes=world.sizes, default_batch_size=world.default, beta_knob=beta, window_size=window)
    story, model = Story(spec, seed=seed), Model(world.sizes, world.default, beta, window, seed)
    expected = model.decisions()
    size = next(expected)
    for recurrence in range(1, RECURRENCES + 1):
        spent = 0.0
        for attempt in range(1, MAX_TRIES):
            trial, bound = story.ask(recurrence, attempt=attempt), model.bound
            assert decided(trial.decision) == pytest.approx((size, bound))
            converged, cost = world.run(size, bound)
            story.tell(trial, reached(cost) if converged else stopped(cost))
            spent += cost
            if converged:
                model.recurrences.append(spent)
            model.asks = len(story.trials) + 1
            size = expected.send((converged, cost))
            if converged:
                break


def decided(decision: Decision) -> tuple[int, float]:
    return decision.batch_size, math.inf if decision.cost_limit is None else decision.cost_limit
