"""Each GPU is counted by exactly one rank: the lowest one alive that watches it."""

import threading
from pathlib import Path

import pytest

from zeus.distributed.counting import CountingLocks

GPU = "GPU-0"


def roll(rank: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> CountingLocks:
    for name, value in {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "3", "MASTER_PORT": "12345"}.items():
        monkeypatch.setenv(name, value)
    return CountingLocks([GPU], folder)


def test_ranks_that_look_at_the_same_time_do_not_take_each_other_for_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roll(0, tmp_path, monkeypatch).close()  # watched it, and is gone
    lowest, other = (roll(rank, tmp_path, monkeypatch) for rank in (1, 2))
    is_over = threading.Event()

    def look() -> None:
        while not is_over.is_set():
            other.counts(GPU)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        assert all(lowest.counts(GPU) for _ in range(20_000))
    finally:
        is_over.set()
        looking.join()
    assert not other.counts(GPU)


def test_a_rank_counts_as_soon_as_all_lower_ones_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lower, higher = (roll(rank, tmp_path, monkeypatch) for rank in (0, 2))
    assert lower.counts(GPU) and not higher.counts(GPU)
    lower.close()
    assert higher.counts(GPU)
    assert lower.counts(GPU), "it counted until it was closed, and its last window may end later"


def test_a_rank_with_two_monitors_counts_in_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (roll(1, tmp_path, monkeypatch) for _ in range(2))
    above = roll(2, tmp_path, monkeypatch)
    assert first.counts(GPU) and second.counts(GPU)
    first.close()
    assert not above.counts(GPU)
    second.close()
    assert above.counts(GPU)
