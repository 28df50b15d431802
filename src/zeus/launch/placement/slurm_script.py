"""The batch script of a Slurm job: some `#SBATCH` lines, and `zeus run` in place of the shell. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from zeus.errors import InputError
from zeus.launch.job_file.placements import SlurmSettings

# Before Slurm kills a job at its time limit, it sends SIGTERM this much earlier. The command then has 20 s to end, and
# the trial is told.
GRACE_SECONDS = 60
# Settings that are options of sbatch, and the variable that would override each of them in a batch script.
VALUES = {
    "partition": "SBATCH_PARTITION",
    "gres": "SBATCH_GRES",
    "time": "SBATCH_TIMELIMIT",
    "constraint": "SBATCH_CONSTRAINT",
    "array": "SBATCH_ARRAY_INX",
    "nodes": "",
}
# The same for the options that every job of Zeus has.
FIXED = frozenset(f"SBATCH_{name}" for name in ("EXPORT", "JOB_NAME", "NO_REQUEUE", "OPEN_MODE", "REQUEUE", "SIGNAL"))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """One job for `sbatch`.

    Args:
        name: Its name in Slurm.
        folder: Where the command is run. The compute nodes must see it.
        command: The `zeus run` of the compute node.
        run_id: Identifies the run. A requeued job finds by it what it had begun.
        settings: [slurm] of the job file.
    """

    name: str
    folder: str
    command: Sequence[str]
    run_id: str
    settings: SlurmSettings = field(default_factory=SlurmSettings)

    def __post_init__(self) -> None:
        for text in (self.folder, *self.command):
            if any(ord(letter) < 32 for letter in text):
                raise InputError(f"{text!r}: a batch script cannot hold line breaks and other control characters.")

    @property
    def overridden(self) -> frozenset[str]:
        """Variables that sbatch must not see, because they would win over what this job asks for.

        >>> gpu = SlurmSettings(partition="gpu")
        >>> job = BatchJob(name="zeus-asr", folder="/", command=["zeus"], run_id="5f", settings=gpu)
        >>> "SBATCH_PARTITION" in job.overridden, "SBATCH_TIMELIMIT" in job.overridden
        (True, False)
        """
        return FIXED | {name for key, name in VALUES.items() if name and getattr(self.settings, key) is not None}


def batch_script(job: BatchJob) -> str:
    r"""The text of the script. It holds no secret: the store and the token come from the environment of `sbatch`.

    >>> job = BatchJob(name="zeus-asr", folder="/home/me", command=["zeus", "run", "job.toml"], run_id="5f0c",
    ...                settings=SlurmSettings(gres="gpu:2", options=["--qos=long"]))
    >>> print(batch_script(job))
    #!/bin/sh
    #SBATCH --job-name=zeus-asr
    #SBATCH --chdir=/home/me
    #SBATCH --gres=gpu:2
    #SBATCH --export=ALL
    #SBATCH --requeue
    #SBATCH --open-mode=append
    #SBATCH --signal=B:TERM@60
    #SBATCH --qos=long
    <BLANKLINE>
    # A requeued job continues the recurrence that it had begun.
    export ZEUS_RUN_ID=5f0c${SLURM_ARRAY_TASK_ID:+.$SLURM_ARRAY_TASK_ID}
    export ZEUS_NODES="$SLURM_JOB_NUM_NODES" ZEUS_SLURM_COMMENT=1
    # In place of the shell, so that the signals of Slurm reach it.
    exec zeus run job.toml
    <BLANKLINE>
    """
    given = {name: value for name in VALUES if (value := getattr(job.settings, name)) is not None}
    if (job.settings.nodes or 1) > 1:
        given["ntasks-per-node"] = 1  # `srun torchrun` starts one torchrun on each node
    options = [
        f"--job-name={job.name}",
        f"--chdir={_word(job.folder)}",
        *(f"--{name}={_word(str(value))}" for name, value in given.items()),
        "--export=ALL",
        "--requeue",
        "--open-mode=append",
        f"--signal=B:TERM@{GRACE_SECONDS}",
        *job.settings.options,  # last, because the last of two equal options counts
    ]
    lines = [
        "#!/bin/sh",
        *(f"#SBATCH {option}" for option in options),
        "",
        "# A requeued job continues the recurrence that it had begun.",
        f"export ZEUS_RUN_ID={job.run_id}${{SLURM_ARRAY_TASK_ID:+.$SLURM_ARRAY_TASK_ID}}",
        'export ZEUS_NODES="$SLURM_JOB_NUM_NODES" ZEUS_SLURM_COMMENT=1',
        "# In place of the shell, so that the signals of Slurm reach it.",
        f"exec {shlex.join(job.command)}",
    ]
    return "\n".join(lines) + "\n"


def _word(text: str) -> str:
    r"""One word of a `#SBATCH` line. Between double quotes, sbatch takes all but the quote and the backslash as it is.

    >>> print(_word("/home/me"), _word('/home/my "data" #2'))
    /home/me "/home/my \"data\" #2"
    """
    return '"' + re.sub(r'([\\"])', r"\\\1", text) + '"' if re.search(r"[\s\\\"'#]", text) else text
