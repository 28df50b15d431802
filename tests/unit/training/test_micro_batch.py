"""A global batch is shared evenly by GPUs and accumulation steps, or refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import InputError
from zeus.training.micro_batch import smaller, split

shares, worlds = st.integers(1, 3000), st.integers(1, 64)


@given(shares, worlds, st.integers(0, 4000))
def test_the_parts_make_the_whole_and_no_gpu_has_more_than_it_may(share: int, world: int, micro: int) -> None:
    found = split(share * world, world, micro)
    assert found.per_device * found.accumulation_steps * found.world_size == share * world
    assert found.world_size == world
    if not micro:
        assert found.accumulation_steps == 1
    else:
        assert found.per_device == max(one for one in range(1, min(micro, share) + 1) if share % one == 0)


@given(st.integers(1, 10_000), worlds)
def test_a_batch_that_gpus_cannot_share_is_refused(batch_size: int, world: int) -> None:
    if batch_size % world:
        with pytest.raises(InputError, match=f"cannot be shared evenly by {world} GPUs. Give a multiple of {world}"):
            split(batch_size, world)


@pytest.mark.parametrize("wrong", [(0, 1, 0), (8, 0, 0), (8, 1, -1), (True, 1, 0), (8.0, 1, 0)])
def test_what_is_no_whole_number_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(InputError, match="give a whole number of at least"):
        split(*wrong)


@given(st.integers(1, 2**20))
def test_halving_goes_down_powers_of_two_to_one_sample(per_device: int) -> None:
    steps = [per_device]
    while (less := smaller(steps[-1])) is not None:
        steps.append(less)
    assert steps[-1] == 1
    for before, after in itertools.pairwise(steps):
        assert before / 2 <= after < before
        assert after & (after - 1) == 0
