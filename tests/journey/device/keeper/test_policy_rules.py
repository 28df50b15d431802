"""The site's policy in a running keeper: what it refuses, what it writes down, and how trainings live with it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from support.keeper_place import Place, as_root, kill_keepers, lease_of, says, talk_by_hand, virtual
from support.waiting import eventually
from zeus.device.keeper import Observing, lend, permitted, status
from zeus.errors import InputError
from zeus.optimizer.power_limit.candidates import candidates

only_virtual = pytest.mark.parametrize("place", [virtual], ids=["virtual"], indirect=True)


def site(place: Place, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A configuration file for the keepers and trainings of this place."""
    path = place.folder / "config.toml"
    path.write_text(text)
    place.env["ZEUS_CONFIG"] = str(path)
    monkeypatch.setenv("ZEUS_CONFIG", str(path))
    return path


@pytest.mark.parametrize("kind", ["private", "system"])
def test_a_limit_outside_the_policy_is_refused_and_changes_nothing(
    place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = place.folder / "audit.log"
    site(place, monkeypatch, f"[keeper]\nfloor = '60 %'\naudit = '{log}'\n")
    monkeypatch.setenv("ZEUS_JOB_ID", 'asr" user=root\nset allowed')
    if kind == "system":
        place.serve()
    floor = 0.6 * place.gpus[0].spec.max_watts
    lease = lease_of(place)
    with pytest.raises(InputError, match=rf"{floor - 1:g} W is not allowed by this machine's policy. Choose between"):
        lease.set_limit(floor - 1)
    assert place.is_untouched()
    assert set(lease.set_limit(floor).values()) == {floor}
    assert set(lease.set_limit(place.found).values()) == {place.found}
    lease.set_limit(floor)
    lease.release()
    assert place.is_back()
    lines = log.read_text().splitlines()
    of_first = [line for line in lines if f"gpu={place.gpus[0].spec.uuid} " in line]
    assert len(lines) == 2 * len(of_first) == 10
    assert [line.split()[1:3] for line in of_first] == [
        ["set", "refused"], ["set", "allowed"], ["set", "allowed"], ["set", "allowed"], ["restore", "allowed"],
    ]  # fmt: skip
    assert f"old_watts={place.found:g} new_watts={floor:g} user=" in of_first[1]
    assert of_first[-1].split()[4:6] == [f"old_watts={floor:g}", f"new_watts={place.found:g}"]
    assert all(line.endswith(r'job="asr\" user=root\nset allowed"') for line in of_first[1:])
    assert "reason=" in of_first[0]
    assert all(line[10] == "T" and line[19:21] == "Z " for line in lines)  # UTC


@only_virtual
def test_an_audit_file_that_is_moved_or_cannot_be_written_is_in_nobodys_way(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place.folder / "log"
    folder.mkdir()
    log = folder / "audit.log"
    site(place, monkeypatch, f"[keeper]\naudit = '{log}'\n")
    place.serve()
    lease = lease_of(place)
    lease.set_limit(place.low)
    log.rename(folder / "audit.log.1")  # as logrotate does
    lease.set_limit(place.lower)
    assert f"new_watts={place.lower:g} " in log.read_text()
    assert f"new_watts={place.lower:g} " not in (folder / "audit.log.1").read_text()
    shutil.rmtree(folder)
    assert lease.set_limit(place.low)
    folder.mkdir()
    lease.release()
    assert place.is_back()
    assert "restore allowed" in log.read_text()


@only_virtual
@pytest.mark.parametrize("kind", ["private", "system"])
def test_a_training_tries_only_limits_that_the_policy_allows(
    place: Place, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site(place, monkeypatch, "[keeper]\nfloor = 150\nceiling = 200\n")
    if kind == "system":
        place.serve()
        monkeypatch.setenv("ZEUS_KEEPER", place.env["ZEUS_KEEPER"])
    assert permitted(place.gpus) == (150, 200)
    assert candidates(place.gpus, 25) == (250, 200, 175, 150)  # that of before is always allowed
    assert candidates(place.gpus, 25, [175, 150]) == (175, 150)
    with pytest.raises(InputError, match=r"power_limits \[125\] W are not allowed by the policy"):
        candidates(place.gpus, 25, [175, 125])
    assert status(place.gpus)["policy"] == "floor 150 W, ceiling 200 W"


@only_virtual
def test_a_changed_policy_holds_for_the_next_lease_without_a_restart(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = site(place, monkeypatch, "")
    place.serve()
    with lease_of(place) as lease:
        lease.set_limit(100)
    path.write_text("[keeper]\nfloor = 200\n")
    with lease_of(place) as lease, pytest.raises(InputError, match="not allowed"):
        lease.set_limit(100)
    path.write_text("[keeper]\nflor = 200\n")
    observing = lend(place.gpus, socket=place.env["ZEUS_KEEPER"])
    assert isinstance(observing, Observing)
    assert "the keeper lends nothing until its policy is mended" in observing.reason
    assert "line 2: flor is not known in [keeper]. Did you mean 'floor'?" in observing.reason


@only_virtual
def test_a_keeper_with_a_broken_policy_still_restores_limits(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = place.train("hold")
    says(trainer, "lowered")
    os.kill(trainer.pid, signal.SIGSTOP)
    kill_keepers(place)
    trainer.kill()
    site(place, monkeypatch, "[keeper]\nfloor = 'low'\n")
    place.serve()
    eventually(place.is_back)


@as_root
@only_virtual
def test_each_group_has_its_own_range(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = "[keeper.groups.daemon]\nfloor = 100\n[keeper.users.bin]\nallow = false\n"
    site(place, monkeypatch, f"[keeper]\nfloor = 200\n{rules}")
    place.serve("--group", "games")
    place.folder.chmod(0o755)
    assert set_as(place, "nobody", ["games"], 100) == "InputError"
    assert set_as(place, "nobody", ["games"], 200) == "done"
    assert set_as(place, "nobody", ["games", "daemon"], 100) == "done"
    assert set_as(place, "bin", ["games"], 200) == "LeaseRefused"
    assert set_as(place, "nobody", [], 200) == "LeaseRefused"
    eventually(place.is_back)


def set_as(place: Place, user: str, groups: list[str], watts: float) -> str:
    """What a user gets who asks for this limit."""
    uuid = place.gpus[0].spec.uuid
    requests = {"op": "hello", "zeus": 1}, {"op": "lease", "gpus": [uuid]}, {"op": "set", "watts": {uuid: watts}}
    return talk_by_hand(place, user, groups, *requests)
