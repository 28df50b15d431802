"""`zeus digest`: what all jobs of a store used and saved in a week, as text, HTML or JSON, for cron and mail."""

from __future__ import annotations

import click

from zeus.cli.output import print_json, print_table, warnings
from zeus.cli.stores import at_store, existing_jobs
from zeus.errors import InputError


@click.command()
@click.option("--week", default="", metavar="YYYY-Www", help="ISO week, such as 2026-W47. Default: this week.")
@click.option(
    "--weeks", type=click.IntRange(1, 520), default=1, show_default=True, help="Number of weeks up to that one."
)
@click.option("--html", "as_html", is_flag=True, help="Print one HTML page that loads nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@at_store
@click.pass_context
def digest(context: click.Context, week: str, weeks: int, as_html: bool, as_json: bool, url: str | None) -> None:
    """Report what all jobs used and saved in a week: energy, money and CO2e, by owner and GPU model.

    Jobs that lose, jobs that fail and jobs that did not run are listed. Of a service, the same is shown on its page.
    """
    from zeus.client.report import fleet_text

    if as_html and as_json:
        raise InputError("--html and --json contradict each other. Give one of them.")
    context.with_resource(warnings())
    told = existing_jobs(url).fleet(weeks, week)
    if as_json:
        print_json(told)
        return
    if as_html:
        click.echo(fleet_text.html(told), nl=False)
        return
    click.echo(fleet_text.title(told))
    click.echo(told["sentence"])
    for name, headings, rows in fleet_text.tables(told):
        click.echo(f"\n{name}")
        words = {"week", "owner", "GPU", "job", "why", "last run (UTC)"}
        print_table(headings, rows, numbers=[one for one in headings if one not in words])
    click.echo("\n(± is one standard error)")
