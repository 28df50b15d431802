"""Opens the store or service that a command names with --store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from zeus import settings
from zeus.cli.options import STORE_DEFAULT
from zeus.errors import InputError
from zeus.store.address import file_of, resolve, shown

if TYPE_CHECKING:
    from zeus.client.api import JobsApi

BLAS_THREADS = "OPENBLAS_NUM_THREADS"

at_store = click.option(
    "--store",
    "url",
    metavar="URL",
    help=f"Store or service, such as sqlite:///path or http://host:port. {STORE_DEFAULT}",
)


def use_one_blas_thread() -> None:
    """Keep numpy from using several threads until this command ends, if it is not loaded yet.

    The ledger's matrices are small. With two threads, which mostly wait for each other, a row of a list takes three
    times as much CPU.
    """
    threads = settings.inherited().get(BLAS_THREADS, "1")
    click.get_current_context().with_resource(settings.changed({BLAS_THREADS: threads}))


def open_jobs(url: str | None) -> JobsApi:
    """The jobs of a store or service, until the command ends. A store's file is created if it does not exist."""
    from zeus.client import catalog

    found = catalog.open_jobs(url)
    click.get_current_context().call_on_close(found.close)
    return found


def find_jobs(url: str | None) -> JobsApi | None:
    """The jobs of a store or service; None if the store's file does not exist. Reading must not create it."""
    path = file_of(resolve(url))
    return None if path is not None and not path.exists() else open_jobs(url)


def existing_jobs(url: str | None) -> JobsApi:
    """The jobs of a store or service.

    Raises:
        InputError: The store's file does not exist.
    """
    found = find_jobs(url)
    if found is None:
        raise InputError(
            f"there is no store at {shown(resolve(url))} yet. The first `zeus run` creates it. "
            "To use another one, set --store or ZEUS_STORE."
        )
    return found
