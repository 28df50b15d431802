"""What is asked of Ray for a submission: the entrypoint of the job, and the GPUs and CPUs it needs. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

START = "zeus.launch.placement.ray.start"
# Ray kills a job this long after `ray job stop` asked it to end. The command of a trial has 20 s to end.
GRACE_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RayJob:
    """One job of Ray. Its entrypoint is the `zeus run` itself, on a node that has what it needs.

    Args:
        id: Its submission id in Ray.
        name: The recurring job's name.
        folder: Where the command is run. All nodes must see it.
        command: The `zeus run` of the node.
        variables: The file that holds the variables of Zeus. It is no secret, but its content may be.
        gpus: GPUs of the run.
        cpus: CPUs of the run.
        resources: Custom resources of Ray that its node must have.
    """

    id: str
    name: str
    folder: str
    command: Sequence[str]
    variables: str
    gpus: int = 1
    cpus: float = 1
    resources: Mapping[str, float] = field(default_factory=dict)

    @property
    def needs(self) -> str:
        """What must be free on one node, in words.

        >>> RayJob(id="a", name="a", folder="/", command=["zeus"], variables="v", gpus=2, resources={"tpu": 1}).needs
        '2 GPU, 1 CPU and 1 tpu'
        """
        amounts = {"GPU": self.gpus, "CPU": self.cpus, **self.resources}
        *parts, last = [f"{amount:g} {name}" for name, amount in amounts.items() if amount]
        return f"{', '.join(parts)} and {last}" if parts else last


def request(job: RayJob) -> dict[str, Any]:
    """The arguments for `JobSubmissionClient.submit_job`. They hold no secret, because Ray shows them to everybody.

    >>> job = RayJob(id="zeus-asr-5f0c", name="asr", folder="/home/me", command=["python", "-m", "zeus.cli", "run"],
    ...              variables="/home/me/v.json", gpus=2)
    >>> print(request(job)["entrypoint"])
    exec python -m zeus.launch.placement.ray.start /home/me/v.json /home/me python -m zeus.cli run
    """
    parts = [job.command[0], "-m", START, job.variables, job.folder, *job.command]
    return {
        "entrypoint": f"exec {shlex.join(parts)}",  # exec: no shell between Ray and `zeus run`
        "entrypoint_num_gpus": job.gpus,
        "entrypoint_num_cpus": job.cpus,
        "entrypoint_resources": dict(job.resources),
        "submission_id": job.id,
        "metadata": {"job_name": f"zeus {job.name}"},
        "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(GRACE_SECONDS)}},
    }
