"""What Slurm says about jobs: records of scontrol and sacct, exit codes, the comment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.launch.placement.slurm_records import (
    energy_comment,
    exit_code_of_run,
    read_sacct,
    read_scontrol,
    with_energy,
)

# As Slurm 22.05 prints them.
ARRAY = """\
JobId=7 ArrayJobId=7 ArrayTaskId=3-5%2 JobName=zeus-toy UserId=me(1000) JobState=PENDING Reason=JobArrayTaskLimit \
Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:00 NodeList= NumNodes=1 \
Command=(null) WorkDir=/home/me/my work StdErr=/home/me/my work/slurm-7_4294967294.out StdIn=/dev/null Power=
JobId=9 ArrayJobId=7 ArrayTaskId=2 JobName=zeus-toy UserId=me(1000) JobState=RUNNING Reason=None Dependency=(null) \
Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=0:0 NodeList=n2 BatchHost=n2 Command=(null) \
WorkDir=/home/me/my work Comment=for the paper; zeus: 12.0 J, 3.0 s, recurrence 4 \
StdErr=/home/me/my work/slurm-7_2.out StdIn=/dev/null \
StdOut=/home/me/my work/slurm-7_2.out Power= TresPerNode=gres:gpu:1
JobId=8 ArrayJobId=7 ArrayTaskId=1 JobName=zeus-toy JobState=FAILED Reason=NonZeroExitCode Restarts=0 ExitCode=3:0 \
NodeList=n1 BatchHost=n1
"""


def test_the_tasks_of_an_array_are_read_in_order() -> None:
    first, second, rest = read_scontrol(ARRAY)
    assert (first.id, first.state, first.exit_code) == ("7_1", "FAILED", 3)
    assert (second.id, second.state, second.nodes, second.restarts) == ("7_2", "RUNNING", "n2", 1)
    assert second.log == "/home/me/my work/slurm-7_2.out"
    assert second.comment == "for the paper; zeus: 12.0 J, 3.0 s, recurrence 4"
    assert (rest.id, rest.state, rest.reason, rest.nodes) == ("7_[3-5%2]", "PENDING", "JobArrayTaskLimit", "")
    assert [one.exit_code is not None for one in (first, second, rest)] == [True, False, False]


def test_a_job_without_an_array_has_its_own_id() -> None:
    (one,) = read_scontrol("JobId=12 JobName=zeus-toy JobState=COMPLETING Reason=None ExitCode=0:0 NodeList=n1\n")
    assert (one.id, one.exit_code is not None) == ("12", False)


def test_sacct_tells_of_jobs_that_scontrol_has_forgotten() -> None:
    text = "7_2|COMPLETED|0:0|n2|1\n7_1|CANCELLED by 1000|0:15|n1|0\n7_3|NODE_FAIL|1:0|None assigned|\n"
    first, second, third = read_sacct(text)
    assert (first.id, first.state, first.exit_code) == ("7_1", "CANCELLED", 143)
    assert (second.exit_code, second.restarts) == (0, 1)
    assert (third.nodes, third.restarts, third.exit_code) == ("", 0, 1)


@pytest.mark.parametrize(
    ("state", "exit_code", "signal", "status"),
    [
        ("COMPLETED", 0, 0, 0),
        ("FAILED", 3, 0, 3),
        ("FAILED", 143, 0, 143),
        ("CANCELLED", 0, 15, 143),
        ("CANCELLED", 0, 0, 143),
        ("TIMEOUT", 0, 0, 143),
        ("NODE_FAIL", 0, 0, 1),
        ("OUT_OF_MEMORY", 0, 9, 137),
    ],
)
def test_the_exit_code_is_that_of_the_run(state: str, exit_code: int, signal: int, status: int) -> None:
    assert exit_code_of_run(state, exit_code, signal) == status


def test_energy_that_is_not_known_is_not_zero() -> None:
    assert "unknown energy" in energy_comment(None, None, [1], unknown=1)
    assert "and more" in energy_comment(5.0, 1.0, [1], unknown=1)


@given(st.text(max_size=30).filter(lambda text: "zeus: " not in text), st.lists(st.floats(0, 1e9), max_size=3))
def test_the_users_comment_stays_and_the_energy_stands_once(own: str, joules: list[float]) -> None:
    comment = own
    for one in joules:
        comment = with_energy(comment, energy_comment(one, None, [1]))
    assert comment.startswith(own)
    assert comment.count("zeus: ") == min(1, len(joules))
