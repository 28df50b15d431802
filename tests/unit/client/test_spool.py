"""Messages that wait: whatever happens, none is lost, none overtakes another, and none is forgotten half-way."""

from __future__ import annotations

import json
import os
import random
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.laws import examples
from support.served import hold_port
from zeus.client.api import (
    ALONE,
    EpochUsed,
    Message,
    OfflineRun,
    ProfileMade,
    Registered,
    TrialEnded,
    TrialLog,
)
from zeus.client.connection import Connection
from zeus.client.http import HttpJobs
from zeus.client.resilient.cache import KEPT_SECONDS, CachedTrial, OfflineCache
from zeus.client.resilient.outbox import Outbox
from zeus.client.resilient.retry import LONGEST_WAIT, Contact, Failed, Patience, quick
from zeus.client.resilient.spool import REFUSED_SECONDS, Spool, default_folder, message_from_text, message_to_json
from zeus.errors import AlreadyDone, Forbidden, InputError, NotAllowed, StoreError
from zeus.job import Ask, Decision, Gpus, JobSpec, Origin, Outcome, Phase, Trial, replace
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.settings.types import TimeLimits

HERE = "sqlite:////srv/zeus.db"
LIMITS = TimeLimits()


def number(number: int) -> TrialEnded:
    """A message that is known by its number."""
    return TrialEnded("asr", number, Outcome(ending="lost"))


def at(folder: Path) -> Spool:
    return Spool(folder, HERE)


class Killed(BaseException):
    """The process ends here."""


PUT, DELIVER = "put", "deliver"
FATES = ("taken", "away", "refused", "token", "killed before", "killed after")
STEPS = st.lists(
    st.one_of(st.just((PUT, ())), st.tuples(st.just(DELIVER), st.lists(st.sampled_from(FATES), max_size=4).map(tuple)))
)


@settings(max_examples=examples(60))
@given(STEPS)
def test_any_order_of_putting_delivering_and_dying_loses_nothing_and_keeps_the_order(
    steps: list[tuple[str, tuple[str, ...]]],
) -> None:
    with TemporaryDirectory() as folder:
        put, taken, refused = 0, [], []

        def deliver(fates: list[str]) -> None:
            def send(message: Message) -> None:
                assert isinstance(message, TrialEnded)
                fate = fates.pop(0) if fates else "taken"
                match fate:
                    case "away":
                        raise StoreError("away")
                    case "token":
                        raise NotAllowed("this token was revoked")
                    case "killed before":
                        raise Killed
                    case "refused":
                        refused.append(message.number)
                        raise AlreadyDone("it ended otherwise")
                taken.append(message.number)
                if fate == "killed after":
                    raise Killed

            with suppress(Killed):
                at(Path(folder)).deliver(send)  # another process each time

        for what, fates in steps:
            if what == PUT:
                at(Path(folder)).put(number(put))
                put += 1
            else:
                deliver(list(fates))
        deliver([])
        heard = list(dict.fromkeys(taken))  # one that was not noted is said again: the service knows it by its key
        assert heard == sorted(heard)
        assert sorted({*heard, *refused}) == list(range(put))
        assert at(Path(folder)).waiting() == []
        kept = sorted((Path(folder) / "refused").glob("*.json"))
        assert len(kept) == len(refused)
        assert all(path.with_suffix(".why").read_text() == "it ended otherwise\n" for path in kept)


def test_one_process_delivers_at_a_time_and_takes_along_what_comes_meanwhile(tmp_path: Path) -> None:
    spool, heard = at(tmp_path), list[int]()

    def send(message: Message) -> None:
        assert isinstance(message, TrialEnded)
        if message.number == 0:
            spool.put(number(1))
            at(tmp_path).deliver(lambda other: heard.append(-1))  # another process: it leaves it to this one
        heard.append(message.number)

    spool.put(number(0))
    spool.deliver(send)
    assert heard == [0, 1]


def test_what_waits_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    spool = at(tmp_path / "spool")
    spool.put(number(1))
    (path,) = spool.waiting()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_is_no_report_stops_nothing(tmp_path: Path) -> None:
    spool, heard = at(tmp_path), list[object]()
    spool.put(number(0))
    (tmp_path / "000000000000-0.json").write_text("{")
    spool.deliver(heard.append)
    assert heard == [number(0)]
    assert [path.name for path in (tmp_path / "refused").glob("*.json")] == ["000000000000-0.json"]


def test_files_that_are_no_messages_are_left_where_they_are(tmp_path: Path) -> None:
    spool, heard = at(tmp_path), list[Message]()
    for name in ("1x-a.json", "7.json", "000000000001-a.json.swp", "000000000001-\u00e4 b.json", "²-a.json"):
        (tmp_path / name).write_text("mine")
    os.mkfifo(tmp_path / "000000000000-0a1b2c3d.json")  # reading it would wait for a writer
    (tmp_path / "000000000001-0a1b2c3d.json").mkdir()
    before = sorted(tmp_path.iterdir())
    for one in range(2):
        spool.put(number(one))
    spool.deliver(heard.append)
    assert heard == [number(0), number(1)]
    assert {*before} <= {*tmp_path.iterdir()}
    assert not (tmp_path / "refused").exists()


def test_a_message_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    spool, heard = at(tmp_path), list[Message]()
    (tmp_path / "000000000000-0a1b2c3d.json").write_text("[" * 100_000)
    spool.put(number(0))
    spool.deliver(heard.append)
    assert heard == [number(0)]
    assert "is not JSON" in (tmp_path / "refused" / "000000000000-0a1b2c3d.why").read_text()


def test_messages_keep_their_order_beyond_twelve_digits(tmp_path: Path) -> None:
    (tmp_path / "999999999998-0a1b2c3d.json").write_text("{")
    for one in range(3):
        at(tmp_path).put(number(one))
    heard = list[Message]()
    at(tmp_path).deliver(heard.append)
    assert heard == [number(0), number(1), number(2)]


def test_a_report_that_the_service_fails_at_waits_for_a_day_and_then_makes_room(tmp_path: Path) -> None:
    spool, heard = at(tmp_path), list[Message]()

    def send(message: Message) -> None:
        if message == number(0):
            raise Failed("it answered 500")
        heard.append(message)

    for one in range(2):
        spool.put(number(one))
    spool.deliver(send)
    assert heard == []  # it may have been the service's bad day
    yesterday = time.time() - REFUSED_SECONDS - 1
    os.utime(spool.waiting()[0], (yesterday, yesterday))
    spool.deliver(send)
    assert heard == [number(1)]
    assert len(list((tmp_path / "refused").glob("*.json"))) == 1


def test_what_waits_is_delivered_also_where_no_lock_can_be_made(tmp_path: Path) -> None:
    spool, heard = at(tmp_path), list[Message]()
    spool.put(number(0))
    (tmp_path / ".lock").mkdir()  # as on a full disk
    spool.deliver(heard.append)
    assert heard == [number(0)]


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be written.*Set XDG_DATA_HOME"):
        at(tmp_path / "file" / "spool").put(number(0))


SPEC = JobSpec(job_id="a/b c", job_id_prefix="a", batch_sizes=(8, 16), default_batch_size=8, mab_seed=3)
V100S = Gpus("V100", 2, 500.0)
DONE = Outcome(ending="converged", joules=5.0, seconds=1.0, epochs=2, metric=0.9)
PROFILE = PowerProfile.of([LimitSlice(250.0, 10, 1.0, 200.0)])
MESSAGES = [
    TrialEnded(SPEC.id, 7, DONE),
    OfflineRun(SPEC, V100S, 16, "key", DONE),
    EpochUsed(SPEC.id, 16, V100S, 12.5, 0.5),
    ProfileMade(ProfileKey(SPEC.id, 16, "V100", 2), PROFILE),
    TrialLog(SPEC.id, 7, "epoch 1 done\n", "5f0c"),
    OfflineRun(SPEC, V100S, 16, "key", DONE, "", "epoch 1 done\n", Origin("alice", "node7", "/home/alice")),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    assert message_from_text(json.dumps(message_to_json(message, HERE)), HERE) == message


def test_a_message_of_a_newer_zeus_stays_until_that_one_delivers_it_and_holds_nothing_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newer = tmp_path / "000000000001-0a1b2c3d.json"
    newer.write_text(json.dumps({"version": 5, "to": HERE, "message": "sung", "notes": "do re mi"}))
    before, spool, heard = newer.read_text(), at(tmp_path), list[Message]()
    spool.put(number(0))
    for _ in range(2):
        spool.deliver(heard.append)
    assert heard == [number(0)]
    assert newer.read_text() == before
    assert not (tmp_path / "refused").exists()
    assert caplog.text.count("version 5") == 1
    assert spool.waiting() == []  # so that what follows need not wait for it
    assert at(tmp_path).waiting() == [newer]


def test_a_message_about_somebody_elses_job_waits_and_holds_nothing_up(tmp_path: Path) -> None:
    spool, heard = at(tmp_path), list[int]()
    for one in (1, 2, 3):
        spool.put(number(one))

    def send(message: Message) -> None:
        assert isinstance(message, TrialEnded)
        if message.number == 2:
            raise Forbidden("job 'asr' belongs to alice")
        heard.append(message.number)

    spool.deliver(send)
    assert heard == [1, 3]
    (kept,) = tmp_path.glob("[0-9]*.json")
    assert at(tmp_path).waiting() == [kept], "it may be accepted later, with another token"


def test_a_message_reaches_no_other_store_than_the_one_it_is_for(tmp_path: Path) -> None:
    at(tmp_path).put(number(0))
    heard = list[Message]()
    Spool(tmp_path, "sqlite:////srv/another.db").deliver(heard.append)
    assert heard == []
    (why,) = (tmp_path / "refused").glob("*.why")
    assert "it is for sqlite:////srv/zeus.db, not for sqlite:////srv/another.db" in why.read_text()


def test_each_service_has_a_folder_of_its_own() -> None:
    ones = {default_folder(f"http://host:{port}", {"XDG_DATA_HOME": "/d"}) for port in range(100)}
    assert len(ones) == 100


# ---------------------------------------------------------------------- what is known


def trial(number: int) -> Trial:
    return Trial(
        ask=Ask(number=number, recurrence=1, gpus=Gpus(max_watts=250.0), eta=0.5),
        decision=Decision(8, Phase.DEFAULT, ""),
        asked=1,
    )


def test_a_trial_is_known_to_every_process_until_it_is_dropped_or_old(tmp_path: Path) -> None:
    known, mine = OfflineCache(tmp_path), CachedTrial(trial(7), Outcome(ending="lost", joules=3.0), "key")
    known.keep("a/b", mine)
    assert OfflineCache(tmp_path).trial("a/b", 7) == mine
    assert known.trial("a", 7) is None
    known.sweep()
    assert known.trial("a/b", 7) == mine
    known.mark_accepted("a/b", mine.trial)
    assert known.trial("a/b", 7) == replace(mine, is_accepted=True)
    later = OfflineCache(tmp_path, wall=lambda: 1e10)
    later.sweep()
    assert later.trial("a/b", 7) is None
    known.keep("a/b", mine)
    known.drop("a/b", 7)
    assert known.trial("a/b", 7) is None
    assert KEPT_SECONDS > 86_400


def test_a_trial_is_known_to_its_own_process_where_the_disk_is_full(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    known, mine = OfflineCache(tmp_path / "file" / "known"), CachedTrial(trial(7))
    known.keep("a", mine)
    assert known.trial("a", 7) == mine
    known.drop("a", 7)
    assert known.trial("a", 7) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "[" * 100_000, '{"trial": {"kind": "trial"}, "so_far": null, "key": null}']
)
def test_what_cannot_be_read_is_not_known(tmp_path: Path, text: str) -> None:
    known = OfflineCache(tmp_path)
    known.keep("a", CachedTrial(trial(1)))
    known.keep_job(Registered(JobSpec(job_id="a", job_id_prefix="a", batch_sizes=(8,), default_batch_size=8), ""))
    for path in tmp_path.rglob("*.json"):
        path.write_text(text)
    assert known.trial("a", 1) is None
    assert known.job("a") is None


def test_files_that_are_no_copies_are_not_read(tmp_path: Path) -> None:
    known = OfflineCache(tmp_path)
    known.keep("a", CachedTrial(trial(ALONE)))
    (copy,) = tmp_path.rglob("*.json")
    copy.with_name("1x.json").write_text("mine")
    assert known.runs_alone("a")
    copy.unlink()
    os.mkfifo(copy)
    assert not known.runs_alone("a")


# ---------------------------------------------------------------------- patience


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


@pytest.fixture(scope="module")
def nobody() -> Iterator[str]:
    """An address at which nobody listens."""
    with hold_port() as door:
        yield f"http://127.0.0.1:{door.getsockname()[1]}"


@settings(max_examples=examples(20))
@given(patience=st.floats(0, 100), seed=st.integers(0, 1000))
def test_a_service_that_is_away_is_tried_more_and_more_seldom_and_not_for_ever(
    nobody: str, patience: float, seed: int
) -> None:
    clock = Clock()
    connection = Connection(nobody)
    contact = Contact("the service", clock=clock, sleep=clock.sleep, rng=random.Random(seed))
    outbox = Outbox(HttpJobs(connection), contact)

    def call(patience: Patience) -> None:
        outbox.call(lambda: connection.call("GET", "/me", lambda said: said), patience)

    with pytest.raises(StoreError, match="cannot be reached"):
        call(Patience(patience, 1.0))
    assert clock.now <= patience
    assert patience - clock.now <= LONGEST_WAIT
    for before, after in zip(clock.waits, clock.waits[1:], strict=False):
        assert after >= min(before, LONGEST_WAIT / 2)
    tries = len(clock.waits)
    with pytest.raises(StoreError, match="a moment ago"):  # a training loop does not wait for it again
        call(quick())
    with pytest.raises(StoreError, match="cannot be reached"):
        call(Patience(patience, 1.0))
    assert len(clock.waits) == tries
    rest = 2 * LIMITS.store_rest  # it is left alone for longer each time that it is found away
    while rest < 4 * LIMITS.store_longest_rest:
        clock.now += min(rest, LIMITS.store_longest_rest) - quick().tries - 1
        with pytest.raises(StoreError, match="a moment ago"):
            call(quick())
        clock.now += quick().tries + 1.001  # a little more, so that rounding does not end it just before the rest does
        with pytest.raises(StoreError, match="cannot be reached"):
            call(quick())
        rest *= 2
    connection.close()


@pytest.mark.parametrize("url", ["http://", "ftp://host", "host:7070", "http://:secret@host:port", "http://[::1"])
def test_what_is_no_address_of_a_service_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(InputError, match="is not the address of a service") as told:
        Connection(url)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("token", ["se cret", "secret\nX-Other: 1", "sécret"])
def test_a_token_that_cannot_be_one_is_refused_unseen(token: str) -> None:
    with pytest.raises(InputError, match="Set ZEUS_TOKEN") as told:
        Connection("http://host", environ={"ZEUS_TOKEN": token})
    assert "cret" not in str(told.value)
