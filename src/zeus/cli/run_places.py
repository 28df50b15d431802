"""`zeus run --on PLACE`: checks what is to run elsewhere, and hands it to the module of the place."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path

from zeus.errors import InputError

LOCAL = "local"
# name -> module whose `submit` takes a submission
PLACES = {
    "slurm": "zeus.cli.run_slurm",
    "ray": "zeus.cli.run_ray",
    "kubernetes": "zeus.launch.placement.kubernetes.output",
}
WATCHED = ("slurm", "ray")


def refuse_unused(place: str, settings: Sequence[str], watch: bool) -> None:
    """Raise InputError if an option has no meaning for this place."""
    if watch and place not in WATCHED:
        raise InputError(f"--watch needs --on {' or --on '.join(WATCHED)}. Leave it out, or add --on.")
    if settings and place == LOCAL:
        raise InputError(
            f"--set {settings[0]}: --set changes a key of [{'], ['.join(PLACES)}] and needs --on. For other keys, "
            "change the job file."
        )


def submit(
    place: str,
    job_file: Path,
    *,
    recurrences: int,
    revise: bool,
    off: bool,
    settings: Sequence[str],
    watch: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run the job elsewhere. Returns the exit code."""
    from zeus.launch.job_file.places import override
    from zeus.launch.job_file.reader import read_job_file
    from zeus.launch.placement.submission import Submission

    file = read_job_file(job_file)
    submission = Submission(
        file=file,
        path=job_file.absolute(),
        folder=Path.cwd(),
        recurrences=recurrences,
        revise=revise,
        off=off,
        settings=override(place, file.places.get(place, {}), settings),
        watch=watch,
        dry_run=dry_run,
        as_json=as_json,
    )
    status: int = importlib.import_module(PLACES[place]).submit(submission)
    return status
