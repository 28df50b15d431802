"""`zeus export --html FILE`: writes the page of a store's jobs as one file that opens offline."""

from __future__ import annotations

from pathlib import Path

import click

from zeus.cli.options import STORE_DEFAULT
from zeus.errors import InputError, ZeusError
from zeus_energy import install_command


@click.command()
@click.argument("jobs", metavar="[JOB]...", nargs=-1)
@click.option(
    "--html",
    "output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to write.",
)
@click.option("--store", "url", metavar="URL", help=f"Store to read. {STORE_DEFAULT}")
def export(jobs: tuple[str, ...], output: Path, url: str | None) -> None:
    """Write a web page about the named jobs, or about all jobs.

    The page is one HTML file that opens offline.
    """
    try:
        from zeus.service.dashboard.export import export as page
    except ImportError as missing:
        raise ZeusError(f"zeus export needs {missing.name}. Run `{install_command('service')}`.") from missing
    from zeus.store import open_store
    from zeus.store.address import file_of, resolve, shown

    path = file_of(resolve(url))
    if path is not None and not path.exists():
        raise InputError(f"there is no store at {shown(resolve(url))}. To use another one, set --store or ZEUS_STORE.")
    text = page(open_store(url), jobs or None)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as wrong:
        raise InputError(f"{output} cannot be written: {wrong.strerror}.") from wrong
    click.echo(f"zeus: wrote {output} ({len(text) / 1e6:.1f} MB)", err=True)
