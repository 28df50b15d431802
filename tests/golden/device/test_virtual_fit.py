"""The committed virtual cards, beside the traces they were fitted to."""

from __future__ import annotations

from types import ModuleType

import pytest

from support.published import TRACES, benchmark, needs_every_card, needs_traces
from zeus.reproduce.study import ORDER

pytestmark = [*needs_traces, needs_every_card]


@pytest.fixture(scope="module")
def fit() -> ModuleType:
    return benchmark("fit_virtual")


def test_the_papers_four_cards_are_fitted(fit: ModuleType) -> None:
    assert set(fit.CARDS) == set(ORDER)


def test_each_card_is_within_5_percent_in_the_median_and_20_at_the_95th_percentile(fit: ModuleType) -> None:
    for card, (time_median, time_p95, power_median, power_p95) in fit.table(TRACES, fit.committed).items():
        assert max(time_median, power_median) <= 0.05, card
        assert max(time_p95, power_p95) <= 0.20, card


def test_a_card_that_is_not_fitted_again_is_written_as_it_was(fit: ModuleType) -> None:
    kept = fit.fits(TRACES, [])
    assert fit.toml(kept) == fit.FITTED.read_text()


def test_the_limit_that_the_model_picks_is_a_good_one_in_the_traces(fit: ModuleType) -> None:
    for card in fit.CARDS:
        for problem in fit.problems_of(TRACES, card):
            prices = sorted(fit.price_of_trust(problem, *fit.committed(card, problem.workload)))
            assert prices[len(prices) // 2] <= 0.05, (card, problem.workload)


def test_no_workload_has_more_than_ten_fitted_numbers(fit: ModuleType) -> None:
    assert len(fit.LOAD) <= 10
