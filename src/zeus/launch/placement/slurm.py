"""Submits recurrences to Slurm, and asks Slurm about them. Only here are its programs called.

    zeus run --on slurm ──sbatch──▶ a compute node: zeus run ──▶ ask, run, tell
            └── --watch: scontrol, sacct, and the store

A job that is preempted, or whose node fails, is requeued. The killed trial is told as lost, with what it used. The
requeued job continues the same recurrence, because both starts have the same ZEUS_RUN_ID.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from zeus import settings
from zeus.errors import InputError, LaunchError, NotKnown
from zeus.launch.job_file.placements import SlurmSettings
from zeus.launch.placement.placement import ClusterPlacement, Task
from zeus.launch.placement.slurm_records import SACCT_FIELDS, read_sacct, read_scontrol, with_energy
from zeus.launch.placement.slurm_script import BatchJob, batch_script
from zeus.launch.placement.submission import OF_THIS_MACHINE, Submission, plain_name

ANSWER_SECONDS = 60.0  # a busy controller may take long
COMMENT_SECONDS = 10.0  # a job that was asked to end has little time
NO_SUCH_JOB = "Invalid job id specified"


class Slurm(ClusterPlacement):
    """A cluster of Slurm. Each task of an array runs all recurrences of the submission."""

    title = "Slurm"
    cancels = "scancel"
    facts = ("id", "state", "exit_code", "restarts", "nodes", "log", "comment")

    def __init__(self, submission: Submission) -> None:
        given = SlurmSettings(**submission.settings)
        submission.file.check_nodes(given.nodes or 1)
        self._job = BatchJob(
            name=plain_name(submission.name),
            folder=str(submission.folder),
            command=submission.command(),
            run_id=submission.run_id,
            settings=given,
        )

    def plan(self, as_json: bool) -> str:
        """The batch script."""
        script = batch_script(self._job)
        return json.dumps({"place": "slurm", "script": script}, indent=2) + "\n" if as_json else script

    def submit(self) -> str:
        """Submit the job. Returns its id.

        It inherits this environment, as with `sbatch` itself. So the address of the store and the token reach it
        without being in the script or in an argument, where others could read them.
        """
        left_out = OF_THIS_MACHINE | self._job.overridden
        passed_on = {  # this may run in a task of an array itself, and the job may be none
            name: text
            for name, text in settings.HERE.items()
            if name not in left_out and not name.startswith("SLURM_ARRAY_")
        }
        given = batch_script(self._job)
        return _call("sbatch", "--parsable", given=given, environ=passed_on).strip().partition(";")[0]

    def look(self, job_id: str, show: Callable[[str], None]) -> list[Task]:
        """The tasks of a job, or the job itself."""
        return find_tasks(job_id)

    @property
    def details(self) -> Mapping[str, Any]:
        """The numbers of the tasks, if the job is an array."""
        return {"array": self._job.settings.array}


def find_tasks(job_id: str) -> list[Task]:
    """The tasks of a job, or the job itself. Slurm forgets a job some minutes after its end; then sacct is asked.

    Raises:
        NotKnown: Neither knows the job any more.
        LaunchError: Slurm does not answer.
    """
    try:
        return read_scontrol(_call("scontrol", "--oneliner", "show", "job", job_id))
    except LaunchError as wrong:
        if NO_SUCH_JOB not in str(wrong):
            raise
    fields = f"--format={','.join(SACCT_FIELDS)}"
    try:
        found = read_sacct(_call("sacct", "--jobs", job_id, "--parsable2", "--noheader", "--allocations", fields))
    except (LaunchError, InputError):  # it keeps no accounts, or sacct is not installed
        found = []
    if not found:
        raise NotKnown(
            f"Slurm no longer knows job {job_id}, and sacct does not either. See how its trials ended with "
            "`zeus jobs show`."
        )
    return found


def set_comment(job_id: str, energy: str) -> None:
    """Add the energy to the comment of a job.

    Raises:
        LaunchError: This is not allowed here, or Slurm does not answer.
    """
    tasks = read_scontrol(_call("scontrol", "--oneliner", "show", "job", job_id, within=COMMENT_SECONDS))
    if not tasks:
        raise LaunchError(f"Slurm does not know job {job_id}.")
    comment = with_energy(tasks[0].comment, energy)
    _call("scontrol", "update", f"JobId={job_id}", f"Comment={comment}", within=COMMENT_SECONDS)


def _call(
    program: str,
    *arguments: str,
    given: str = "",
    environ: Mapping[str, str] = settings.HERE,
    within: float = ANSWER_SECONDS,
) -> str:
    """What a program of Slurm prints."""
    if shutil.which(program) is None:
        raise InputError(
            f"{program} is not found. Run this where the programs of Slurm are installed, as on a login node."
        )
    try:
        done = subprocess.run(
            [program, *arguments],
            input=given,
            env=dict(environ),
            capture_output=True,
            text=True,
            timeout=within,
            check=False,
        )
    except subprocess.TimeoutExpired:
        _refused(program, f"it did not answer within {within:g} s")
    if done.returncode:
        _refused(program, done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def _refused(program: str, why: str) -> NoReturn:
    raise LaunchError(f"Slurm: {program} failed: {why.removeprefix(f'{program}: ')}")
