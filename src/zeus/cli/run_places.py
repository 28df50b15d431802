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
PLACES: Mapping[str, str] = {
    "slurm": "zeus.cli.run_slurm",
    "ray": "zeus.cli.run_ray",
    "kubernetes": "zeus.launch.placement.kubernetes.output",
}


def _pairs(text: str) -> dict[str, str]:
    """Read `NAME=VALUE`, or several separated by commas."""
    pairs = [one.partition("=") for one in text.split(",")]
    if not all(name and equals for name, equals, _ in pairs):
        raise click.BadParameter(f"{text!r}: give NAME=VALUE, or several separated by commas.")
    return {name: value for name, _, value in pairs}


# key of the job file, which is the flag too -> (places that know it, kind, help); a flag of kind `bool` takes no value
FLAGS: Mapping[str, tuple[tuple[str, ...], Any, str]] = {
    "partition": (("slurm",), str, "Partition of the job."),
    "gres": (("slurm",), str, "GPUs of each node, such as gpu:2."),
    "time": (("slurm",), str, "Time limit, such as 12:00:00."),
    "constraint": (("slurm",), str, "Features that the nodes must have."),
    "array": (("slurm",), str, "Run a recurrence in each task of an array, such as 1-10%2."),
    "watch": (("slurm", "ray"), bool, "Wait until the job has ended, and show its progress."),
    "dry_run": ((LOCAL, *PLACES), bool, "Check everything and show what would be run, but run nothing."),
    "address": (("ray",), str, "Address of the Ray cluster, such as http://head:8265."),
    "gpus": (("ray", "kubernetes"), float, "GPUs of the run, or of each pod."),
    "cpus": (("ray",), float, "CPUs of the run."),
    "image": (("kubernetes",), str, "Container image that holds Zeus and the training script."),
    "namespace": (("kubernetes",), str, "Namespace of the job."),
    "kind": (("kubernetes",), click.Choice(["job", "cronjob", "pytorchjob"]), "What to make."),
    "schedule": (("kubernetes",), str, 'When a cronjob runs, as in "0 3 * * *".'),
    "workers": (("kubernetes",), int, "Pods of a pytorchjob beside its master."),
    "secret": (("kubernetes",), str, "Name of the Secret that holds ZEUS_STORE and ZEUS_TOKEN."),
    "keeper_socket": (("kubernetes",), str, "Socket of the keeper on each node."),
    "node_selector": (("kubernetes",), _pairs, "Labels of the nodes to run on."),
    "service_account": (("kubernetes",), str, "Service account of the pods."),
}


def place_options(command: F) -> F:
    """Give a command `--on` and the flags of all places."""
    for name, (places, kind, about) in reversed(list(FLAGS.items())):
        takes: dict[str, Any] = {"is_flag": True, "default": None} if kind is bool else {"type": kind}
        where = "" if LOCAL in places else f" (--on {' or '.join(places)})"
        command = click.option(_flag(name), name, help=f"{about}{where}", **takes)(command)
    choices = click.Choice([LOCAL, *PLACES])
    return click.option("--on", "place", type=choices, default=LOCAL, show_default=True, help="Where to run the job.")(
        command
    )


def submit(
    place: str, job_file: Path, recurrences: int, revise: bool, off: bool, flags: Mapping[str, Any], as_json: bool
) -> int:
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
        off=off,
        settings=place_settings(file, place, flags),
        as_json=as_json,
    )
    status: int = importlib.import_module(PLACES[place]).submit(submission)
    return status


def refuse_strange(place: str, flags: Mapping[str, Any]) -> None:
    """Raise InputError if a flag belongs to another place."""
    for name, value in flags.items():
        places = FLAGS[name][0]
        if value is not None and place not in places:
            raise InputError(f"{_flag(name)} needs --on {' or --on '.join(places)}. Leave it out, or add --on.")


def _flag(name: str) -> str:
    """The flag for a key: `--node-selector` for node_selector."""
    return f"--{name.replace('_', '-')}"
