"""Reports that wait: whatever happens, none is lost, none overtakes another, and none is forgotten half-way."""

from __future__ import annotations

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

from served import hold_port
from zeus.errors import AlreadyDone, InputError, NotAllowed, StoreError
from zeus.job import Ask, Decision, Gpus, JobSpec, Outcome, Phase, Trial
from zeus.optimizer.batch_size.http import LONGEST_WAIT, QUICK, REST_SECONDS, Failed, Patience, Service
from zeus.optimizer.batch_size.known import KEPT_SECONDS, Known, Mine
from zeus.optimizer.batch_size.spool import REFUSED_SECONDS, Report, Spool, default_folder


class Killed(BaseException):
    """The process ends here."""


PUT, DELIVER = "put", "deliver"
FATES = ("taken", "away", "refused", "token", "killed before", "killed after")
STEPS = st.lists(
    st.one_of(st.just((PUT, ())), st.tuples(st.just(DELIVER), st.lists(st.sampled_from(FATES), max_size=4).map(tuple)))
)


@settings(max_examples=60)
@given(STEPS)
def test_any_order_of_putting_delivering_and_dying_loses_nothing_and_keeps_the_order(
    steps: list[tuple[str, tuple[str, ...]]],
) -> None:
    with TemporaryDirectory() as folder:
        put, taken, refused = 0, [], []

        def deliver(fates: list[str]) -> None:
            def send(report: Report) -> None:
                fate = fates.pop(0) if fates else "taken"
                match fate:
                    case "away":
                        raise StoreError("away")
                    case "token":
                        raise NotAllowed("this token was revoked")
                    case "killed before":
                        raise Killed
                    case "refused":
                        refused.append(report.body)
                        raise AlreadyDone("it ended otherwise")
                taken.append(report.body)
                if fate == "killed after":
                    raise Killed

            with suppress(Killed):
                Spool(Path(folder)).deliver(send)  # another process each time

        for what, fates in steps:
            if what == PUT:
                Spool(Path(folder)).put(Report("POST", f"/{put}", put))
                put += 1
            else:
                deliver(list(fates))
        deliver([])
        heard = list(dict.fromkeys(taken))  # one that was not noted is said again: the service knows it by its key
        assert heard == sorted(heard)
        assert sorted({*heard, *refused}) == list(range(put))
        assert Spool(Path(folder)).waiting() == []
        kept = sorted((Path(folder) / "refused").glob("*.json"))
        assert len(kept) == len(refused)
        assert all(path.with_suffix(".why").read_text() == "it ended otherwise\n" for path in kept)


def test_one_process_delivers_at_a_time_and_takes_along_what_comes_meanwhile(tmp_path: Path) -> None:
    spool, heard = Spool(tmp_path), list[int]()

    def send(report: Report) -> None:
        if report.body == 0:
            spool.put(Report("POST", "/", 1))
            Spool(tmp_path).deliver(lambda other: heard.append(-1))  # another process: it leaves it to this one
        heard.append(report.body)

    spool.put(Report("POST", "/", 0))
    spool.deliver(send)
    assert heard == [0, 1]


def test_what_waits_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.put(Report("POST", "/jobs/a/trials/1/tell", {"ending": "lost"}, trial=("a", 1)))
    (path,) = spool.waiting()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_is_no_report_stops_nothing(tmp_path: Path) -> None:
    spool, heard = Spool(tmp_path), list[object]()
    spool.put(Report("POST", "/", 0))
    (tmp_path / "000000000000-0.json").write_text("{")
    spool.deliver(lambda report: heard.append(report.body))
    assert heard == [0]
    assert [path.name for path in (tmp_path / "refused").glob("*.json")] == ["000000000000-0.json"]


def test_a_report_that_the_service_fails_at_waits_for_a_day_and_then_makes_room(tmp_path: Path) -> None:
    spool, heard = Spool(tmp_path), list[int]()

    def send(report: Report) -> None:
        if report.body == 0:
            raise Failed("it answered 500")
        heard.append(report.body)

    for number in range(2):
        spool.put(Report("POST", "/", number))
    spool.deliver(send)
    assert heard == []  # it may have been the service's bad day
    yesterday = time.time() - REFUSED_SECONDS - 1
    os.utime(spool.waiting()[0], (yesterday, yesterday))
    spool.deliver(send)
    assert heard == [1]
    assert len(list((tmp_path / "refused").glob("*.json"))) == 1


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be written.*Set XDG_DATA_HOME"):
        Spool(tmp_path / "file" / "spool").put(Report("POST", "/", 0))


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
    known, mine = Known(tmp_path), Mine(trial(7), Outcome(ending="lost", joules=3.0), "key")
    known.keep("a/b", mine)
    assert Known(tmp_path).trial("a/b", 7) == mine
    assert known.trial("a", 7) is None
    known.sweep()
    assert known.trial("a/b", 7) == mine
    later = Known(tmp_path, wall=lambda: 1e10)
    later.sweep()
    assert later.trial("a/b", 7) is None
    known.keep("a/b", mine)
    known.drop("a/b", 7)
    assert known.trial("a/b", 7) is None
    assert KEPT_SECONDS > 86_400


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"trial": {"kind": "trial"}, "so_far": null, "key": null}'])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, text: str) -> None:
    known = Known(tmp_path)
    known.keep("a", Mine(trial(1)))
    known.keep_spec(JobSpec(job_id="a", job_id_prefix="a", batch_sizes=(8,), default_batch_size=8))
    for path in tmp_path.rglob("*.json"):
        path.write_text(text)
    assert known.trial("a", 1) is None
    assert known.spec("a") is None


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


@settings(max_examples=20)
@given(patience=st.floats(0, 100), seed=st.integers(0, 1000))
def test_a_service_that_is_away_is_tried_more_and_more_seldom_and_not_for_ever(
    nobody: str, patience: float, seed: int
) -> None:
    clock = Clock()
    service = Service(nobody, clock=clock, sleep=clock.sleep, rng=random.Random(seed))
    with pytest.raises(StoreError, match="is away"):
        service.call("GET", "/me", lambda said: said, patience=Patience(patience, 1.0))
    assert clock.now <= patience
    assert patience - clock.now <= LONGEST_WAIT
    for before, after in zip(clock.waits, clock.waits[1:], strict=False):
        assert after >= min(before, LONGEST_WAIT / 2)
    tries = len(clock.waits)
    with pytest.raises(StoreError, match="a moment ago"):  # a training loop does not wait for it again
        service.call("GET", "/me", lambda said: said, patience=QUICK)
    with pytest.raises(StoreError, match="is away"):
        service.call("GET", "/me", lambda said: said, patience=Patience(patience, 1.0))
    assert len(clock.waits) == tries
    clock.now += REST_SECONDS
    with pytest.raises(StoreError, match="is away"):
        service.call("GET", "/me", lambda said: said, patience=QUICK)
    service.close()


@pytest.mark.parametrize("url", ["http://", "ftp://host", "host:7070", "http://:secret@host:port", "http://[::1"])
def test_what_is_no_address_of_a_service_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(InputError, match="give the address of a service") as told:
        Service(url)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("token", ["se cret", "secret\nX-Other: 1", "sécret"])
def test_a_token_that_cannot_be_one_is_refused_unseen(token: str) -> None:
    with pytest.raises(InputError, match="Set ZEUS_TOKEN") as told:
        Service("http://host", environ={"ZEUS_TOKEN": token})
    assert "cret" not in str(told.value)
