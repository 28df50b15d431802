"""Whoever is killed or told to stop, whenever: the limit found comes back."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time

import pytest
from click.testing import CliRunner

from support.keeper_place import (
    Place,
    is_dead,
    keepers_of,
    kill_keepers,
    lease_of,
    nvidia,
    pipes_of,
    says,
    stat_of,
)
from support.nvml.fake import FakeNvml
from support.waiting import PATIENCE_SECONDS, eventually, limits
from zeus.cli.keeper import restore as restore_command
from zeus.errors import KeeperLost


@pytest.mark.parametrize("seed", range(4))
def test_a_trainer_killed_at_a_random_moment(place: Place, kind: str, seed: int) -> None:
    trainer = place.train("churn")
    says(trainer, "started")
    time.sleep(random.Random(f"{kind}:{seed}").uniform(0, 0.6))  # from before the lease to well into it
    trainer.kill()
    trainer.wait()
    eventually(place.is_back)


@pytest.mark.parametrize("what", ["fork", "raw-fork"])
def test_workers_that_outlive_their_killed_trainer_do_not_keep_the_limit(place: Place, kind: str, what: str) -> None:
    trainer = place.train(what)
    worker = int(says(trainer, "worker"))
    try:
        says(trainer, "lowered")
        trainer.kill()
        trainer.wait()
        eventually(place.is_back)
        os.kill(worker, 0)
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_trainer_that_ends_has_its_limit_back_before_it_is_gone(place: Place, kind: str) -> None:
    trainer = place.train("end")
    assert trainer.communicate(timeout=PATIENCE_SECONDS)[0].split() == ["started", "lowered"]
    assert place.is_untouched()


def test_ctrl_c_reaches_the_trainer_and_not_its_keeper(place: Place) -> None:
    trainer = place.train("hold", start_new_session=True, stderr=subprocess.DEVNULL)
    says(trainer, "lowered")
    os.killpg(trainer.pid, signal.SIGINT)
    assert trainer.wait(PATIENCE_SECONDS) != 0
    eventually(place.is_back)


def test_whoever_waits_for_the_trainers_output_to_end_does_not_wait_for_the_keeper(place: Place) -> None:
    trainer = place.train("hold")
    says(trainer, "lowered")
    for pid in keepers_of(place):
        assert not pipes_of(pid) & pipes_of(trainer.pid)
    trainer.kill()
    assert trainer.communicate(timeout=PATIENCE_SECONDS)[0] == ""
    eventually(place.is_back)


def test_a_private_keeper_is_nobodys_child_and_ends_with_its_lease(place: Place) -> None:
    with lease_of(place) as lease:
        lease.set_limit(place.low)
        (pid,) = keepers_of(place)
        assert int(stat_of(pid)[1]) != os.getpid()
    eventually(lambda: is_dead(pid))


@pytest.mark.parametrize("place", [nvidia], ids=["nvidia"], indirect=True)
@pytest.mark.parametrize("trouble", ["hang", "lost"])
def test_a_private_keeper_outlives_its_trainer_until_the_driver_lets_it_put_the_limit_back(
    place: Place, fake_nvml: FakeNvml, trouble: str
) -> None:
    place.env["ZEUS_TIME_LIMITS"] = limits(driver_answer=0.2)
    trainer = place.train("hold")
    says(trainer, "lowered")
    (pid,) = keepers_of(place)
    for card in fake_nvml.cards:
        card.fail("all", trouble)
    trainer.kill()
    log = place.folder / "notes" / "keeper.log"
    eventually(lambda: log.exists() and log.read_text().count("could not be restored") == len(place.gpus))
    for card in fake_nvml.cards:
        assert card.limit_watts == place.low
        card.heal()
    eventually(place.is_back)
    eventually(lambda: is_dead(pid))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_keeper_told_to_stop_first_puts_everything_back(place: Place, number: int) -> None:
    keeper = place.serve()
    with lease_of(place) as lease:
        lease.set_limit(place.low)
        keeper.send_signal(number)
        assert keeper.wait(PATIENCE_SECONDS) == 0
        assert place.is_back()
        assert not (place.folder / "keeper.sock").exists()
        with pytest.raises(KeeperLost):
            lease.set_limit(place.low)


def test_a_private_keeper_told_to_stop_puts_everything_back(place: Place) -> None:
    with lease_of(place) as lease:
        lease.set_limit(place.low)
        for pid in keepers_of(place):
            os.kill(pid, signal.SIGTERM)
        eventually(place.is_back)
        with pytest.raises(KeeperLost):
            lease.set_limit(place.low)


def test_a_killed_system_keeper_puts_back_when_it_starts_again(place: Place) -> None:
    keeper = place.serve()
    lease = lease_of(place)
    lease.set_limit(place.low)
    keeper.kill()
    keeper.wait()
    assert place.is_lowered()
    with pytest.raises(KeeperLost):
        lease.set_limit(place.lower)
    place.serve()
    eventually(place.is_back)
    lease.release()


def test_a_trainer_whose_private_keeper_was_killed_has_its_limit_put_back_at_its_end(place: Place) -> None:
    lease = lease_of(place)
    lease.set_limit(place.low)
    kill_keepers(place)
    with pytest.raises(KeeperLost):
        lease.set_limit(place.lower)
    lease.release()
    eventually(place.is_back)


def test_the_next_trainer_finds_the_true_limit_after_both_were_killed(place: Place) -> None:
    trainer = place.train("hold")
    says(trainer, "lowered")
    os.kill(trainer.pid, signal.SIGSTOP)  # so that it cannot act while its keeper is killed first
    kill_keepers(place)
    trainer.kill()
    trainer.wait()
    assert place.is_lowered()
    with lease_of(place) as lease:
        assert set(lease.found.values()) == {place.found}


def test_zeus_restore_puts_back_by_hand_and_says_so(place: Place) -> None:
    trainer = place.train("hold")
    says(trainer, "lowered")
    command = CliRunner()
    on_lease = command.invoke(restore_command, ["--json"])
    assert (on_lease.exit_code, json.loads(on_lease.output)) == (0, {"gpus": []})
    assert place.is_lowered()
    os.kill(trainer.pid, signal.SIGSTOP)
    kill_keepers(place)
    done = command.invoke(restore_command, ["--json"])
    assert done.exit_code == 0
    assert [(g["ending"], g["limit_watts"]) for g in json.loads(done.output)["gpus"]] == [("restored", place.found)] * 2
    assert place.is_back()
    assert "Nothing" in command.invoke(restore_command, []).output


def test_zeus_restore_fails_where_it_could_not(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = lease_of(place)
    lease.set_limit(place.low)
    kill_keepers(place)
    monkeypatch.setenv("ZEUS_READ_ONLY", "1")
    assert CliRunner().invoke(restore_command, []).exit_code == 1
    monkeypatch.setenv("ZEUS_READ_ONLY", "0")
    assert CliRunner().invoke(restore_command, []).exit_code == 0
    lease.release()
