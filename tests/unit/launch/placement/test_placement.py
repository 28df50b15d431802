"""What a cluster says about jobs: when they are over, and how they ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zeus.cli.run_placement import LOOK_SECONDS, watch
from zeus.errors import LaunchError
from zeus.launch.job_file.reader import parse_job_file
from zeus.launch.placement.placement import ClusterPlacement, Task, exit_code_of, is_over
from zeus.launch.placement.submission import Submission
from zeus.settings import run_id

JOB = """\
name = {name!r}
command = "python train.py {{batch_size}}"
batch_sizes = [8, 16]
default_batch_size = 16
target_metric = 0.84
max_epochs = 10
"""


def test_several_tasks_end_as_the_first_that_failed() -> None:
    good = Task(id="7_1", state="COMPLETED", exit_code=0)
    missed, crashed = (Task(id=f"7_{code}", state="FAILED", exit_code=code) for code in (3, 1))
    assert [exit_code_of(some) for some in ([good], [good, missed, crashed], [])] == [0, 3, 0]


def test_a_job_that_may_return_is_over_once_it_has_not() -> None:
    running, lost = Task(id="7", state="RUNNING"), Task(id="7", state="NODE_FAIL", exit_code=1, may_return=True)
    assert not is_over([running], [running])
    assert not is_over([lost], [running])
    assert is_over([lost], [lost])
    assert is_over([Task(id="7", state="FAILED", exit_code=3)], [running])


@pytest.mark.parametrize("name", ["asr", "speech (nightly)", "ünï/코드", "x" * 200])
def test_the_id_of_a_run_is_one_that_every_place_takes(name: str) -> None:
    submission = Submission(file=parse_job_file(JOB.format(name=name)), path=Path("/job.toml"), folder=Path("/"))
    assert run_id({"ZEUS_RUN_ID": submission.run_id}) == submission.run_id
    other = Submission(file=submission.file, path=submission.path, folder=submission.folder)
    assert submission.run_id != other.run_id


class Told(ClusterPlacement):
    """A cluster that answers what a test has written down, look by look."""

    title, cancels, facts = "Told", "cancel", ()

    def __init__(self, *looks: Task | LaunchError) -> None:
        self._looks = list(looks)

    def plan(self, as_json: bool) -> str:
        return ""

    def submit(self) -> str:
        return "7"

    def look(self, job_id: str, show: Callable[[str], None]) -> list[Task]:
        seen = self._looks.pop(0)
        if isinstance(seen, LaunchError):
            raise seen
        return [seen]


def test_each_change_is_shown_once_and_a_cluster_that_does_not_answer_is_asked_again() -> None:
    waiting, running = Task(id="7", state="PENDING", reason="Priority"), Task(id="7", state="RUNNING", nodes="n1")
    away = LaunchError("Slurm: it does not answer.")
    ended = Task(id="7", state="FAILED", exit_code=3)
    shown, slept = list[str](), list[float]()
    tasks = watch(Told(waiting, waiting, away, away, running, ended), "7", shown.append, sleep=slept.append)
    assert tasks == [ended]
    assert shown == [
        "job 7: pending (Priority)\n",
        "zeus: Slurm: it does not answer. Still trying.\n",
        "job 7: running on n1\n",
        "job 7: failed, exit code 3\n",
    ]
    assert slept == [LOOK_SECONDS] * 5
