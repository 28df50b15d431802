"""What is asked of Ray for a submission: the entrypoint of the job, and the GPUs and CPUs of its run. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DRIVER = "zeus.launch.placement.ray.driver"
# Ray kills a job this long after `ray job stop` asked it to end. The command of a trial has 20 s to end.
GRACE_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RayJob:
    """One job of Ray.

    Args:
        id: Its submission id in Ray.
        name: The recurring job's name.
        folder: Where the command is run. All nodes must see it.
        command: The `zeus run` of the node.
        run_id: Identifies the run. A run that is started again finds by it what it had begun.
        variables: The file that holds the variables of Zeus. It is no secret, but its content may be.
        gpus: GPUs of the run.
        cpus: CPUs of the run.
        resources: Custom resources of Ray that its node must have.
    """

    id: str
    name: str
    folder: str
    command: Sequence[str]
    run_id: str
    variables: str
    gpus: float = 1
    cpus: float = 1
    resources: Mapping[str, float] = field(default_factory=dict)


def request(job: RayJob) -> dict[str, Any]:
    """The arguments for `JobSubmissionClient.submit_job`. They hold no secret, because Ray shows them to everybody.

    >>> job = RayJob(id="zeus-asr-5f0c", name="asr", folder="/home/me", command=["python", "-m", "zeus.cli", "run"],
    ...              run_id="zeus-asr-5f0c", variables="/home/me/v.json", gpus=2)
    >>> print(request(job)["entrypoint"])
    exec python -m zeus.launch.placement.ray.driver --name asr --folder /home/me --run-id zeus-asr-5f0c \
--variables /home/me/v.json --gpus 2 --cpus 1 -- python -m zeus.cli run
    """
    python = job.command[0]
    parts = [python, "-m", DRIVER, "--name", job.name, "--folder", job.folder, "--run-id", job.run_id]
    parts += ["--variables", job.variables, "--gpus", f"{job.gpus:g}", "--cpus", f"{job.cpus:g}"]
    parts += ["--resources", json.dumps(dict(job.resources))] if job.resources else []
    return {
        "entrypoint": f"exec {shlex.join([*parts, '--', *job.command])}",  # exec: no shell between Ray and the driver
        "submission_id": job.id,
        "metadata": {"job_name": f"zeus {job.name}"},
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(GRACE_SECONDS)}},
    }
