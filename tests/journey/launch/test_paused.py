"""A paused job under `zeus run`: it trains as before Zeus, and Zeus only measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.launch_place import Place
from zeus.job import Ending, Phase
from zeus.store import MemoryStore
from zeus.store.actor import Actor, acting

pytestmark = pytest.mark.usefixtures("warm")


def test_a_paused_job_trains_once_with_its_default_at_the_limit_that_it_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, store = Place(tmp_path), MemoryStore()
    place.script(epochs=3)  # too few for the default, which needs four
    place.job(max_epochs=3)
    launcher = place.launcher(monkeypatch, store=store)
    with acting(Actor("alice", owner="vision/alice")):
        store.pause("toy")
    try:
        once = launcher.recur()
        store.pause("toy", paused=False)
        tuned = launcher.recur()
    finally:
        launcher.close()
    (only,) = once.tries
    assert (only.batch_size, only.ending, only.decision.phase) == (16, Ending.NOT_CONVERGED, Phase.BASELINE)
    assert only.outcome is not None and not only.outcome.set_limits
    assert {one.limit_watts for one in only.outcome.stretches} == {only.outcome.found_watts or 250.0}
    assert len(tuned.tries) > 1, "Zeus tries other sizes again"
