"""`zeus run --dry-run`: checks the job and shows its next trial, but runs and records nothing."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from zeus.cli.format import plural
from zeus.cli.output import print_json
from zeus.errors import DONE
from zeus.tariff.text import joules

if TYPE_CHECKING:
    from zeus.launch.job_file.values import JobFile

Json = dict[str, Any]


def print_plan(file: JobFile, revise: bool, as_json: bool) -> int:
    """Print what `zeus run` would do now. Raises like `zeus run` if the job could not be run."""
    plan = _plan(file, revise)
    if as_json:
        print_json(plan)
        return DONE
    known = "is new" if plan["recurrences"] is None else f"has run {plural(plan['recurrences'], 'recurrence')}"
    click.echo(
        f"job {plan['job']!r} {known}" + (f"; it would be revised: {plan['revision']}" if plan["revision"] else "")
    )
    limits = ", ".join(f"{watts:g}" for watts in plan["power_limits"])
    click.echo(f"GPUs:    {plan['gpus']}; mode {plan['mode']}; power limits {limits or 'that cannot be set'} W")
    bound = "" if plan["cost_limit"] is None else f" It would be stopped above a cost of {joules(plan['cost_limit'])}."
    click.echo(f"next:    batch size {plan['batch_size']}: {plan['reason'].rstrip('.')}.{bound}")
    if sizes := plan["profiles_first"]:
        click.echo(f"first:   profiles batch sizes {sizes}, and may then start with another of them")
    elif plan["recurrences"] is None and len(file.spec.batch_sizes) > 1 and file.spec.start == "default":
        click.echo(
            'start:   with `start = "profiled"` in the job file, Zeus profiles sizes first and may begin with another'
        )
    click.echo(f"command: {shlex.join(plan['command'])}")
    click.echo(f"store:   {plan['store']}")
    click.echo("Nothing was run or stored.")
    return DONE


def _plan(file: JobFile, revise: bool) -> Json:
    """The next trial, asked of a copy of the job in memory. A decision depends on the job and its past alone."""
    from zeus.client.catalog import copy_job
    from zeus.launch.launcher import Launcher
    from zeus.store.address import resolve, shown

    copy = copy_job(file.spec.id)
    known = file.spec.id in copy.pulse()
    launcher = Launcher(file, store=copy, revise=revise, dry=True)
    try:
        recurrences = launcher.jobs.full(file.spec.id)["recurrences"] if known else None
        profiled = launcher.to_profile_first()
        trial = launcher.job.ask(launcher.gpus, None, launcher.max_tries)
        return {
            "job": file.spec.id,
            "recurrences": recurrences,
            "revision": launcher.revision or None,
            "gpus": launcher.gpus.label,
            "mode": launcher.mode.value,
            "power_limits": launcher.power_limits,
            "batch_size": trial.batch_size,
            "profiles_first": profiled,
            "phase": trial.decision.phase.value,
            "reason": trial.decision.reason,
            "cost_limit": trial.decision.cost_limit,
            "command": launcher.command(launcher.first_start(trial)),
            "store": shown(resolve()),
        }
    finally:
        launcher.close()
