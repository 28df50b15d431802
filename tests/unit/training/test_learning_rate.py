"""Learning rates follow the batch size by the rule asked for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import InputError
from zeus.training.learning_rate import RULES, scale
from zeus.utils.lr_scaler import LinearScaler, SquareRootScaler

rates = st.floats(1e-6, 10)
sizes = st.integers(1, 100_000)
rules = st.sampled_from(sorted(RULES))


@given(rates, sizes, sizes, sizes, rules)
def test_scaling_twice_is_scaling_once(lr: float, first: int, second: int, third: int, rule: str) -> None:
    twice = scale(scale(lr, first, second, rule), second, third, rule)
    assert twice == pytest.approx(scale(lr, first, third, rule))


@given(rates, sizes, rules)
def test_the_same_batch_size_keeps_its_rate(lr: float, size: int, rule: str) -> None:
    assert scale(lr, size, size, rule) == lr


@given(rates, sizes, sizes)
def test_the_names_users_know_do_the_same(lr: float, size: int, other: int) -> None:
    assert SquareRootScaler(size, lr).compute_lr(other) == scale(lr, size, other, "sqrt")
    assert LinearScaler(size, lr).compute_lr(other) == scale(lr, size, other, "linear")
    assert scale(lr, size, other, "none") == lr


def test_four_times_the_batch_is_twice_or_four_times_the_rate() -> None:
    assert SquareRootScaler(bs=256, lr=0.01).compute_lr(1024) == pytest.approx(0.02)
    assert LinearScaler(bs=256, lr=0.01).compute_lr(1024) == pytest.approx(0.04)


@pytest.mark.parametrize("lr", [0, -1, math.nan, math.inf])
def test_a_learning_rate_that_is_none_is_refused(lr: float) -> None:
    with pytest.raises(InputError, match="learning rate"):
        scale(lr, 8, 16)
    with pytest.raises(InputError, match="learning rate"):
        LinearScaler(8, lr)


@pytest.mark.parametrize("size", [0, -8, 1.5, math.nan, math.inf, True])
def test_a_batch_size_that_is_none_is_refused(size: int) -> None:
    for sizes_given in ((size, 8), (8, size)):
        with pytest.raises(InputError, match="batch size"):
            scale(0.1, *sizes_given)
    with pytest.raises(InputError, match="batch size"):
        SquareRootScaler(size, 0.1)


def test_an_unknown_rule_is_answered_with_those_there_are() -> None:
    with pytest.raises(InputError, match="sqrt, linear, none"):
        scale(0.1, 8, 16, "cubic")
