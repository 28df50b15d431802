"""The committed virtual cards, beside the traces they were fitted to."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from zeus.simulate.traces import published

ROOT = Path(__file__).parents[2]
TRACES = published(ROOT)

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(
        not TRACES.is_dir(),
        reason=f"the published traces are not in {TRACES}; set ZEUS_DATA to the folder that holds nsdi23_traces",
    ),
]


@pytest.fixture(scope="module")
def fit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit_virtual", ROOT / "benchmarks" / "fit_virtual.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def test_each_card_is_within_5_percent_in_the_median_and_20_at_the_95th_percentile(fit: ModuleType) -> None:
    for card, (time_median, time_p95, power_median, power_p95) in fit.table(TRACES, fit.committed).items():
        assert max(time_median, power_median) <= 0.05, card
        assert max(time_p95, power_p95) <= 0.20, card


def test_the_limit_that_the_model_picks_is_a_good_one_in_the_traces(fit: ModuleType) -> None:
    for card in fit.CARDS:
        for problem in fit.problems_of(TRACES, card):
            prices = sorted(fit.price_of_trust(problem, *fit.committed(card, problem.workload)))
            assert prices[len(prices) // 2] <= 0.05, (card, problem.workload)


def test_no_workload_has_more_than_ten_fitted_numbers(fit: ModuleType) -> None:
    assert len(fit.LOAD) <= 10
