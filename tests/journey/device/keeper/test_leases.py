"""Leases across processes: one at a time, within bounds, and only for the process that took them."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest

from support.keeper_place import (
    Place,
    as_root,
    lease_of,
    nvidia,
)
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.device.keeper import Observing, lend, status
from zeus.errors import InputError, KeeperLost, ReadOnly


def test_a_gpu_is_lent_to_one_at_a_time_whoever_the_keeper_is(place: Place) -> None:
    with lease_of(place):
        place.serve()
        refused = lend(place.gpus, socket=place.env["ZEUS_KEEPER"])
        assert isinstance(refused, Observing)
        assert f"process {os.getpid()}" in refused.reason
    with lease_of(place) as lease:
        assert lease.kind == "system"
        assert status(place.gpus, place.env["ZEUS_KEEPER"])["lent"] == sorted(lease.found)


def test_of_two_trainers_that_start_at_once_one_gets_all(place: Place, kind: str) -> None:
    trainers = [place.train("end") for _ in range(2)]
    words = [trainer.communicate(timeout=PATIENCE_SECONDS)[0].split()[1] for trainer in trainers]
    assert "lowered" in words
    assert place.is_untouched()


def test_limits_are_checked_by_the_keeper_and_raised_as_the_same_error(place: Place, kind: str) -> None:
    with lease_of(place) as lease:
        for watts in (place.gpus[0].spec.min_watts - 1, place.found + 1, float("nan")):
            with pytest.raises(InputError):
                lease.set_limit(watts)
        with pytest.raises(InputError, match="not part of this lease"):
            lease.set_limit(place.low, gpu="GPU-none")
        assert place.is_untouched()
        uuid = place.gpus[1].spec.uuid
        assert lease.set_limit(place.low, gpu=place.gpus[1]) == {uuid: place.low}
        assert place.limits() == [place.found, place.low]
    with pytest.raises(KeeperLost):
        lease.set_limit(place.low)
    lease.release()


def test_a_forgotten_lease_ends(place: Place, kind: str) -> None:
    lease = lease_of(place)
    lease.set_limit(place.low)
    del lease
    eventually(place.is_back)


def test_in_a_forked_child_the_lease_does_nothing(place: Place, kind: str) -> None:
    with lease_of(place) as lease:
        lease.set_limit(place.low)
        if (child := os.fork()) == 0:
            code = 1
            with contextlib.suppress(BaseException):
                try:
                    lease.set_limit(place.lower)
                except KeeperLost:
                    lease.release()
                    code = 0
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert place.is_lowered()
        lease.set_limit(place.lower)


def test_read_only_only_observes_and_refuses_a_lease_taken_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease_of(place) as lease:
        monkeypatch.setenv("ZEUS_READ_ONLY", "1")
        with pytest.raises(ReadOnly):
            lease.set_limit(place.low)
        observing = lend(place.gpus)
        assert isinstance(observing, Observing)
        assert "ZEUS_READ_ONLY" in observing.reason
        assert "ZEUS_READ_ONLY" in status(place.gpus)["why_not"]


def test_where_no_keeper_answers_zeus_observes_and_says_what_to_do(place: Place) -> None:
    observing = lend(place.gpus, socket=place.folder / "none.sock")
    assert isinstance(observing, Observing)
    assert "zeus keeper --socket" in observing.reason


@as_root
@pytest.mark.parametrize("place", [nvidia], ids=["nvidia"], indirect=True)  # anybody may set virtual cards
def test_without_rights_and_without_a_keeper_zeus_observes_and_says_what_to_do(place: Place) -> None:
    script = "import os; from zeus.device.find import machine; from zeus.device.keeper import lend; gpus = machine()\n"
    script += "[gpu.spec for gpu in gpus]; os.seteuid(65534); print(lend(gpus).reason)"
    trainer = place.start("-c", script, stderr=subprocess.DEVNULL)
    assert "zeus keeper" in trainer.communicate(timeout=PATIENCE_SECONDS)[0]
    assert place.is_untouched()
