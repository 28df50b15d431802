"""Speaks to a service: one request, tried again while the service is away, and its refusals as our own errors.

    request ──▶ an answer of ours ──▶ what it says, or NotKnown, AlreadyDone, NotAllowed, InputError
          └───▶ none, or not one of ours ──▶ StoreError, once `zeus.jobs.remote.retry` is at its end

Only what has the form of our own answers counts as one: a proxy's page about a service that is being restarted, with
whatever status, says that it is away, not that a job is unknown.
"""

from __future__ import annotations

import random
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from zeus import env
from zeus.errors import AlreadyDone, InputError, NotAllowed, NotKnown, StoreError
from zeus.job.wire import VERSION
from zeus.jobs.remote.retry import SOON, Contact, Failed, Patience
from zeus.store.address import shown

T = TypeVar("T")

AWAY = {408, 425, 429, 500, 502, 503, 504}
REFUSALS = {401: NotAllowed, 403: NotAllowed, 404: NotKnown, 409: AlreadyDone}


class Service:
    """A service at an address. Safe to use from several threads.

    Args:
        url: As in http://host:7070 or http://:TOKEN@host:7070.
        environ: Says ZEUS_TOKEN, and ZEUS_PATIENCE for the start of a run.
        clock: Seconds.
        sleep: Waits so many of them.
        rng: Spreads the tries of many clients.

    Raises:
        InputError: Not such an address, or a token that cannot be one.
    """

    def __init__(
        self,
        url: str,
        *,
        environ: Mapping[str, str] = env.HERE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        import httpx  # a tenth of a second that those who use no service are spared

        self.address, password = _parts(url)
        token = password or env.token(environ)
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise InputError(f"the token for {self.address} is not one that `zeus token create` made. Set ZEUS_TOKEN.")
        headers = {"Zeus-Wire": str(VERSION), **({"Authorization": f"Bearer {token}"} if token else {})}
        self._client = httpx.Client(base_url=self.address, headers=headers)
        self.close = weakref.finalize(
            self, self._client.close
        )  # connections are let go, if only with the service itself
        self._away = (httpx.TransportError, httpx.DecodingError)
        self.contact = Contact(f"the service {self.address}", clock=clock, sleep=sleep, rng=rng)
        self.begin = Patience.to_begin(env.patience(environ))

    def call(
        self,
        method: str,
        path: str,
        read: Callable[[Any], T],
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        patience: Patience = SOON,
    ) -> T:
        """What `read` makes of the answer.

        Args:
            method: Of HTTP.
            path: Below /api/v1.
            read: Takes the answer's JSON, or its text; an answer that it cannot read is none.
            body: JSON, or a text as it is.
            query: What follows the path.
            key: The same request is repeated with the same key, so that it has one effect.
            patience: How long to wait. A service that was away a moment ago gets one try at most.

        Raises:
            NotKnown, AlreadyDone, NotAllowed, InputError: The service refused.
            StoreError: It is away.
        """

        def once(seconds: float) -> T:
            try:
                return self._once(method, path, read, body, query, key, seconds)
            except StoreError as away:
                raise type(away)(f"the service {self.address} is away: {away}.") from away

        return self.contact.call(once, patience)

    def _once(
        self,
        method: str,
        path: str,
        read: Callable[[Any], T],
        body: Any,
        query: Mapping[str, Any] | None,
        key: str | None,
        seconds: float,
    ) -> T:
        content: dict[str, Any] = {} if body is None else {"content" if isinstance(body, str) else "json": body}
        headers = {} if key is None else {"Idempotency-Key": key}
        try:
            answer = self._client.request(
                method, f"/api/v1{path}", params=query, headers=headers, timeout=seconds, **content
            )
        except self._away as wrong:
            raise StoreError(str(wrong) or type(wrong).__name__) from wrong
        if not answer.is_success:
            raise _refusal(answer)
        try:
            return read(_said(answer))
        except (InputError, LookupError, TypeError, ValueError, AttributeError) as wrong:
            why = f"it answered what Zeus cannot read ({wrong})"
            raise StoreError(why) from wrong

    def trouble(self) -> str | None:
        """Why a training could not use it, for `zeus env`; None where it could."""
        try:
            scope = self.call("GET", "/me", lambda said: said["scope"])
        except (InputError, StoreError) as wrong:
            return str(wrong)
        if scope is None:
            return f"the service {self.address} wants a token that it knows: set ZEUS_TOKEN."
        return None if scope != "read" else f"this token may only read at {self.address}: `report` is needed to train."


def of_job(job_id: str, rest: str = "") -> str:
    """The path of a job.

    >>> of_job("a/b c", "/ask")
    '/jobs/a%2Fb%20c/ask'
    """
    return f"/jobs/{quote(job_id, safe='')}{rest}"


def _parts(url: str) -> tuple[str, str]:
    """The address, without any secret, and the secret.

    >>> _parts("http://:zeus_1@host:7070/")
    ('http://host:7070', 'zeus_1')
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # a port that is none
        host, port = "", None
    if not host or parts.scheme not in ("http", "https"):
        raise InputError(f"{shown(url)}: give the address of a service, as in http://host:7070.")
    netloc = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", "")), unquote(parts.password or "")


def _said(answer: Any) -> Any:
    """What an answer says, if it is one of ours."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if answer.status_code == 204:  # nothing more than that it is done
        return None
    match kind:
        case "application/json":
            return answer.json()
        case "application/x-ndjson":
            return answer.text
    raise ValueError(f"of type {kind or 'unknown'}")


def _refusal(answer: Any) -> InputError | StoreError:
    status = answer.status_code
    if answer.is_redirect:
        return StoreError(f"it sends elsewhere; if {answer.headers.get('location')} is its address, give that")
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return StoreError(f"it answered {status}, not as a Zeus service does")
    if status in AWAY:
        return (Failed if status == 500 else StoreError)(f"it answered {status}: {message}")
    return REFUSALS.get(status, InputError)(message)
