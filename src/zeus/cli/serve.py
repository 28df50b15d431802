"""`zeus serve`: serves the store over HTTP, with a page. The store is migrated when needed."""

from __future__ import annotations

import re
from pathlib import Path

import click

from zeus.cli.options import STORE_DEFAULT, FiniteRange
from zeus.cli.stores import use_one_blas_thread
from zeus.errors import InputError
from zeus.lazy import optional

HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,100}")


@click.command()
@click.option("--store", "url", metavar="URL", help=f"Store to serve. {STORE_DEFAULT}")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to bind to. Use 0.0.0.0 to accept connections from other machines.",
)
@click.option("--port", type=click.IntRange(1, 65_535), default=7070, show_default=True, help="Port to bind to.")
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of processes.")
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Host name under which clients may reach the service; repeatable.",
)
@click.option("--require-token", is_flag=True, help="Require a token on loopback too. Use this behind a proxy.")
@click.option(
    "--insecure", is_flag=True, help="Require no token, even from other machines. Anyone may then do anything."
)
@click.option(
    "--proxy",
    multiple=True,
    metavar="ADDRESS",
    help="Trust X-Forwarded-For and X-Forwarded-Proto from this proxy; repeatable.",
)
@click.option(
    "--trust-proxy",
    multiple=True,
    metavar="ADDRESS[/BITS]",
    help="Let this proxy say who signed in, and trust it like --proxy; repeatable. Needs --proxy-user-header.",
)
@click.option("--proxy-user-header", default="", metavar="NAME", help="Header with the name, as X-Forwarded-User.")
@click.option(
    "--proxy-scope",
    type=click.Choice(["read", "report"]),
    default="read",
    show_default=True,
    help="What people may do who sign in through the proxy.",
)
@click.option("--certfile", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TLS certificate.")
@click.option("--keyfile", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="TLS private key.")
@click.option(
    "--rate",
    type=FiniteRange(0),
    default=500.0,
    show_default=True,
    help="Requests per second that one client may send; 0 means no limit.",
)
@click.option(
    "--connections",
    type=click.IntRange(min=2),
    default=1000,
    show_default=True,
    help="Highest number of open connections per worker.",
)
@click.option(
    "--log",
    "log_kind",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log.",
)
def serve(
    url: str | None,
    host: str,
    port: int,
    workers: int,
    allow_host: tuple[str, ...],
    require_token: bool,
    insecure: bool,
    proxy: tuple[str, ...],
    trust_proxy: tuple[str, ...],
    proxy_user_header: str,
    proxy_scope: str,
    certfile: Path | None,
    keyfile: Path | None,
    rate: float,
    connections: int,
    log_kind: str,
) -> None:
    """Serve a store of jobs over HTTP, with a web page, until Ctrl-C."""
    use_one_blas_thread()
    with optional("zeus serve", "service"):
        from zeus.service.app import Settings
        from zeus.service.auth import is_loopback
        from zeus.service.connections import proxies_of
        from zeus.service.server import ServerPlan, address, check_free, hosts_of, serve
    from zeus.store import open_store
    from zeus.store.address import resolve, shown

    if bool(certfile) != bool(keyfile):
        raise InputError("--certfile and --keyfile go together. Give both or neither.")
    if bool(trust_proxy) != bool(proxy_user_header):
        raise InputError(
            "--trust-proxy and --proxy-user-header go together: one says which proxy to believe, the other in which "
            "header it names people. Give both or neither."
        )
    if proxy_user_header and not HEADER_NAME.fullmatch(proxy_user_header):
        raise InputError(f"--proxy-user-header {proxy_user_header!r}: give the name of a header, as X-Forwarded-User.")
    if insecure and require_token:
        raise InputError("--insecure and --require-token contradict each other. Give only one of them.")
    if url is not None and shown(url) != url:
        click.echo(
            "zeus: every user of this machine can read the password in this command. Set ZEUS_STORE instead.",
            err=True,
        )
    # Behind a proxy that signs people in, every request comes from loopback. Without a name it is nobody's.
    is_open = insecure or (is_loopback(host) and not require_token and not trust_proxy)
    store = open_store(url)
    has_tokens = any(token.revoked_at is None for token in store.tokens.all())
    store.close()
    if not is_open and not has_tokens and not trust_proxy:
        why = "--require-token" if is_loopback(host) else f"--host {host}, which other machines can reach,"
        raise InputError(
            f"{why} needs a token, and the store has none. Create one with `zeus token create NAME` (same --store), "
            "or give --insecure to let anyone do anything."
        )
    settings = Settings(
        open=is_open,
        hosts=hosts_of(host, allow_host),
        per_second=rate,
        log_json=log_kind == "json",
        proxy_user_header=proxy_user_header,
        trusted_proxies=proxies_of(trust_proxy, "--trust-proxy"),
        proxy_scope=proxy_scope,
    )
    plan = ServerPlan(
        store=resolve(url),
        host=host,
        port=port,
        workers=workers,
        certfile=str(certfile) if certfile else None,
        keyfile=str(keyfile) if keyfile else None,
        proxies=(*proxies_of(proxy), *settings.trusted_proxies),
        connections=connections,
        settings=settings,
    )
    if not is_loopback(host) and certfile is None:
        click.echo(
            f"zeus: {address(plan)} is plain HTTP, so tokens can be read on the network. Give --certfile and "
            "--keyfile, or bind to loopback behind a proxy with TLS.",
            err=True,
        )
    check_free(plan)
    access = "no token needed" if is_open else "token needed"
    if trust_proxy:
        access = f"{access}, or sign-in through {', '.join(trust_proxy)}"
    click.echo(f"zeus: serving {shown(resolve(url))} at {address(plan)} ({access}). Press Ctrl-C to stop.", err=True)
    serve(plan)
