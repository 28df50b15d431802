"""The walk over power limits: the limits it sets, the steps at each, and its choice stay what they are."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from zeus.device.virtual import presets
from zeus.device.virtual.physics import operate
from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.profiler import Done, Measuring, Plan, Settling
from zeus.optimizer.power_limit.selector import MaxSlowdownConstraint, OptimumSelector, ZeusCost
from zeus.profile import LimitSlice

KEPT = Path(__file__).parents[1] / "files" / "profiling_walk.json"
CASES: list[dict[str, Any]] = json.loads(KEPT.read_text())
CHUNK_SECONDS = 0.1


def selector(name: str) -> OptimumSelector:
    kind, number = name.split()
    return ZeusCost(float(number)) if kind == "cost" else MaxSlowdownConstraint(float(number))


def walked(plan: Plan, card: str, load: str, batch_size: int, noise: float) -> dict[str, Any]:
    """Profile a workload of a virtual card; what a golden case holds."""
    rng, state = random.Random(1), profiler.start(plan)
    steps: Counter[float] = Counter()
    order: list[float] = []
    while not isinstance(state, Done):
        limit = state.limit if isinstance(state, Settling | Measuring) else plan.limits[0]
        done = operate(presets.card(card), presets.load(card, load), batch_size, limit)
        count = max(1, round(CHUNK_SECONDS / done.seconds)) if isinstance(state, Measuring) else 1
        seconds = count * done.seconds * rng.gauss(1, noise)
        steps[limit] += count
        order += [limit] if order[-1:] != [limit] else []
        if isinstance(state, Measuring):
            state = profiler.measured(
                state, LimitSlice(limit, count, seconds, seconds * done.watts * rng.gauss(1, noise))
            )
        else:
            state = profiler.step(state, seconds)
    return {"order": order, "steps": [steps[limit] for limit in plan.limits], "best": state.best_limit}


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join(str(case[key]) for key in ("card", "load", "selector"))
)
def test_the_default_walks_as_it_always_did(case: dict[str, Any]) -> None:
    plan = Plan(tuple(case["limits"]), selector(case["selector"]))
    found = walked(plan, case["card"], case["load"], case["batch_size"], case["noise"])
    assert found == {key: case[key] for key in ("order", "steps", "best")}
