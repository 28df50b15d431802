"""What is checked about a job file before anything is registered or started."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from zeus import settings
from zeus.device.ranks import shared_folder
from zeus.errors import InputError
from zeus.files import FileLock
from zeus.job import JobSpec
from zeus.launch.job_file.values import JobFile

APART = ("job_id", "job_id_prefix", "command_id", "command")
OTHERS = {"command_id": "command", "higher_is_better_metric": "direction (higher_is_better)"}


def revision(stored: JobSpec, wanted: JobSpec, *, allowed: bool) -> str:
    """What this job changes about a stored one of the same name, as text. Empty: nothing.

    Raises:
        InputError: The stored job has another command or direction, and that is not allowed.
    """
    other = [what for name, what in OTHERS.items() if _differs(getattr(stored, name), getattr(wanted, name))]
    if other and not allowed:
        raise InputError(
            f"job {wanted.id!r} already exists with another {' and another '.join(other)}. Give this job another "
            "name, or add --revise to continue the existing job's history."
        )
    names = [name for name in wanted.__struct_fields__ if name not in APART]
    changes = [
        f"{name} {getattr(stored, name)} -> {getattr(wanted, name)}"
        for name in names
        if getattr(wanted, name) is not None and getattr(stored, name) != getattr(wanted, name)
    ]
    return ", ".join([*changes, *(["another command"] if "command" in other else [])])


def _differs(stored: object, wanted: object) -> bool:
    """Whether both are given and differ."""
    return stored != wanted and "" not in (stored, wanted)


def check_sizes(file: JobFile, gpus: int) -> None:
    """Raise InputError if the GPUs cannot share a batch size and the command must know its share."""
    try:
        for size in file.spec.batch_sizes:
            file.split(size, gpus, 0)
    except InputError as wrong:
        raise InputError(f"batch_sizes: {wrong} Or choose other GPUs with `gpus`.") from wrong


def check_command(file: JobFile) -> None:
    program, paths = file.command[0], file.env.get("PATH", settings.HERE.get("PATH"))
    if "{" not in program and shutil.which(program, path=paths) is None:
        raise InputError(
            f"command: {program!r} is not found or not executable. The command is run without a shell, in the current "
            "folder; to use shell syntax, write `sh -c '...'`."
        )
    script = next((part for part in file.command[1:] if not part.startswith("-")), "")
    if script.endswith(".py") and "{" not in script and not Path(script).exists():
        raise InputError(f"command: the script {script!r} is not found in {Path.cwd()}, where the command is run.")


def lock_metrics(path: Path) -> FileLock:
    """Lock a file of metrics for one `zeus run`, until the lock is released or the process ends.

    If two scripts wrote to it, their lines could not be told apart.

    Raises:
        InputError: Another process of this user holds it.
    """
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
    folder = shared_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = FileLock.take(folder / f"metrics-{name}.lock")
    if held is None:
        raise InputError(
            f"[metrics] file: another `zeus run` is following {path.absolute()}. Start this one in another folder."
        )
    return held
