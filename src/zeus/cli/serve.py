"""`zeus serve`: the store behind an address, with a page. One command; migrations apply themselves."""

from __future__ import annotations

from pathlib import Path

import click

from zeus.errors import InputError, ZeusError


@click.command()
@click.option("--store", "url", metavar="URL", help="Default: ZEUS_STORE, or the user's own SQLite file.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to bind to. Use 0.0.0.0 to accept connections from other machines.",
)
@click.option("--port", type=click.IntRange(1, 65_535), default=7070, show_default=True)
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True)
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name by which browsers reach it; repeatable.")
@click.option("--require-token", is_flag=True, help="On loopback too, as behind a proxy that others reach.")
@click.option("--insecure", is_flag=True, help="Serve others without any token. Whoever reaches it may do anything.")
@click.option(
    "--proxy",
    multiple=True,
    metavar="ADDRESS",
    help="A proxy in front, whose X-Forwarded-For and X-Forwarded-Proto are believed; repeatable.",
)
@click.option("--certfile", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="For TLS.")
@click.option("--keyfile", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="For TLS.")
@click.option(
    "--rate",
    type=click.FloatRange(min=0),
    default=500.0,
    show_default=True,
    help="Requests a second of one client; 0: any.",
)
@click.option(
    "--connections",
    type=click.IntRange(min=2),
    default=1000,
    show_default=True,
    help="Open connections of each worker. One client may have half of them.",
)
@click.option("--log", "log_kind", type=click.Choice(["text", "json"]), default="text", show_default=True)
def serve(
    url: str | None,
    host: str,
    port: int,
    workers: int,
    allow_host: tuple[str, ...],
    require_token: bool,
    insecure: bool,
    proxy: tuple[str, ...],
    certfile: Path | None,
    keyfile: Path | None,
    rate: float,
    connections: int,
    log_kind: str,
) -> None:
    """Serve the store and its page until interrupted."""
    try:
        from zeus.service.app import Settings
        from zeus.service.auth import is_loopback
        from zeus.service.connections import proxies_of
        from zeus.service.server import ServerPlan, address, check_free, hosts_of, serve
    except ImportError as missing:
        raise ZeusError(f"zeus serve needs {missing.name}: pip install 'zeus-energy[service]'.") from missing
    from zeus.store import open_store
    from zeus.store.address import resolve, shown

    if bool(certfile) != bool(keyfile):
        raise InputError("--certfile and --keyfile go together: give both, or neither.")
    if insecure and require_token:
        raise InputError("--insecure serves without tokens and --require-token does not: give one of them.")
    if url is not None and shown(url) != url:
        click.echo(
            "zeus: every user of this machine can read the password on this command line; set ZEUS_STORE instead.",
            err=True,
        )
    is_open = insecure or (is_loopback(host) and not require_token)
    store = open_store(url)
    has_tokens = any(token.revoked_at is None for token in store.tokens.all())
    store.close()
    if not is_open and not has_tokens:
        why = "--require-token" if is_loopback(host) else f"--host {host}, which others reach,"
        raise InputError(
            f"{why} needs a token, and there is none yet: make one with `zeus token create NAME` (the same --store), "
            "or say --insecure to let anybody do anything."
        )
    settings = Settings(
        open=is_open,
        hosts=hosts_of(host, allow_host),
        per_second=rate,
        log_json=log_kind == "json",
    )
    plan = ServerPlan(
        store=resolve(url),
        host=host,
        port=port,
        workers=workers,
        certfile=str(certfile) if certfile else None,
        keyfile=str(keyfile) if keyfile else None,
        proxies=proxies_of(proxy),
        connections=connections,
        settings=settings,
    )
    if not is_loopback(host) and certfile is None:
        click.echo(
            f"zeus: {address(plan)} is plain HTTP: whoever is on the way reads tokens. Give --certfile and --keyfile, "
            "or bind to loopback behind a proxy that ends TLS.",
            err=True,
        )
    check_free(plan)
    door = "open to anybody who reaches it" if is_open else "with tokens"
    click.echo(f"zeus: serving {shown(resolve(url))} at {address(plan)} ({door}); Ctrl-C ends it", err=True)
    serve(plan)
