"""`zeus logs`: the output of a trial, of one that has ended and of one that runs."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.job import Ending, Gpus, JobSpec, Outcome
from zeus.store import Store, open_store
from zeus.store.address import log_file, log_folder

pytestmark = pytest.mark.usefixtures("warm")

PLACE = Gpus("V100", 1, 250.0)
SPEC = JobSpec(job_id="a job", job_id_prefix="a", batch_sizes=(8, 16), default_batch_size=8, max_epochs=10, mab_seed=1)
END = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=1, metric=0.9)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    monkeypatch.delenv("ZEUS_STORE", raising=False)
    return f"sqlite:///{tmp_path}/zeus.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


def zeus(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "zeus.cli", "logs", *arguments]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, check=False)


def opened(job: RecurringJob, url: str, said: bytes) -> Path:
    """A new trial whose command has written this."""
    trial = job.ask(PLACE)
    folder = log_folder(SPEC.id, job.generation, {"ZEUS_STORE": url})
    folder.mkdir(parents=True, exist_ok=True)
    path = log_file(folder, trial.number, trial.id)
    path.write_bytes(said)
    return path


def test_the_newest_log_is_printed_byte_by_byte_and_others_by_their_number(url: str, store: Store) -> None:
    job = RecurringJob.register(LocalJobs(store), SPEC)
    said = b"epoch 1\r\nbad \xff byte, no newline"
    opened(job, url, b"first\n")
    job.tell(1, END)
    opened(job, url, said)
    newest, first = zeus("a job", "--store", url), zeus("a job", "1", "--store", url)
    assert (newest.returncode, newest.stdout, newest.stderr) == (0, said, b"")
    assert (first.returncode, first.stdout, first.stderr) == (0, b"first\n", b"")


def test_a_log_is_followed_until_its_trial_ends(url: str, store: Store) -> None:
    job = RecurringJob.register(LocalJobs(store), SPEC)
    path = opened(job, url, b"epoch 1\n")
    command = [sys.executable, "-m", "zeus.cli", "logs", "a job", "-f", "--store", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"epoch 1\n"
        with path.open("ab") as log:
            log.write(b"epoch 2\n")
        assert following.stdout.readline() == b"epoch 2\n"
        assert following.poll() is None
        with path.open("ab") as log:
            log.write(b"done\n")
        job.tell(1, END)
        assert following.stdout.read() == b"done\n"
        assert following.wait(PATIENCE_SECONDS) == 0


def test_what_is_not_there_is_said(url: str, store: Store) -> None:
    job = RecurringJob.register(LocalJobs(store), SPEC)
    none = zeus("a job", "--store", url)
    job.ask(PLACE)  # on another machine, so its log is there
    elsewhere, unknown, other = (
        zeus("a job", "--store", url),
        zeus("a job", "7", "--store", url),
        zeus("b", "--store", url),
    )
    assert [one.returncode for one in (none, elsewhere, unknown, other)] == [2, 2, 2, 2]
    assert b"has no trials yet" in none.stderr
    assert f"It ran on {socket.gethostname()}".encode() in elsewhere.stderr  # which writes logs elsewhere
    assert b"has no trial 7" in unknown.stderr
    assert b"is not in this store" in other.stderr
    for one in (none, elsewhere, unknown, other):
        assert one.stdout == b"" and b"Traceback" not in one.stderr
