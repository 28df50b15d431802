"""`zeus export --html FILE`: writes the page of a store's jobs as one file that opens offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from zeus.cli.stores import at_store, existing_jobs, use_one_blas_thread
from zeus.errors import InputError
from zeus.lazy import optional

if TYPE_CHECKING:
    from zeus.store import Store


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
@at_store
def export(jobs: tuple[str, ...], output: Path, url: str | None) -> None:
    """Write a web page about the named jobs, or about all jobs.

    The page is one HTML file that opens offline.
    """
    use_one_blas_thread()
    with optional("zeus export", "service"):
        from zeus.service.dashboard.export import export as page
    from zeus.store import MemoryStore, open_store
    from zeus.store.address import is_service, resolve

    kept = existing_jobs(url)
    if is_service(resolve(url)):
        store: Store = MemoryStore()
        store.import_lines(kept.export(jobs))
    else:
        store = open_store(url)
    text = page(store, jobs or None)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as wrong:
        raise InputError(f"{output} cannot be written: {wrong.strerror}.") from wrong
    click.echo(f"zeus: wrote {output} ({len(text) / 1e6:.1f} MB)", err=True)
