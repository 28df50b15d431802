"""`zeus run --on PLACE`: finds the place and checks that the flags given are its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from zeus.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
LOCAL = "local"

# name -> module whose `submit` takes a submission
PLACES: Mapping[str, str] = {}

# flag -> (places that know it, kind, help)
FLAGS: Mapping[str, tuple[tuple[str, ...], Any, str]] = {}


def place_options(command: F) -> F:
    """Give a command `--on` and the flags of all places."""
    for name, (places, kind, about) in reversed(list(FLAGS.items())):
        option = click.option(f"--{name}", name, type=kind, help=f"{about} (--on {' or '.join(places)})")
        command = option(command)
    choices = click.Choice([LOCAL, *PLACES])
    return click.option("--on", "place", type=choices, default=LOCAL, show_default=True, help="Where to run the job.")(
        command
    )


def submit(place: str, job_file: Path, recurrences: int, revise: bool, flags: Mapping[str, Any]) -> int:
    """Run the job elsewhere. Returns the exit code."""
    from zeus.launch.job_file.reader import read_job_file
    from zeus.launch.placement.submission import Submission, place_settings

    file = read_job_file(job_file)
    submission = Submission(
        file=file,
        path=job_file.absolute(),
        folder=Path.cwd(),
        recurrences=recurrences,
        revise=revise,
        settings=place_settings(file, place, flags),
    )
    status: int = importlib.import_module(PLACES[place]).submit(submission)
    return status


def refuse_strange(place: str, flags: Mapping[str, Any]) -> None:
    """Raise InputError if a flag belongs to another place."""
    for name, value in flags.items():
        places = FLAGS[name][0]
        if value is not None and place not in places:
            raise InputError(f"--{name} needs --on {' or --on '.join(places)}. Leave it out, or add --on.")
