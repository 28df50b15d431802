"""Speaks to a service: one request, tried again while the service is away, and its refusals as our own errors."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from zeus.errors import AlreadyDone, InputError, NotKnown, StoreError

TIMEOUT = 10.0  # for one answer
PATIENCE = 20.0  # for all tries of one request
FIRST_WAIT, LONGEST_WAIT = 0.1, 3.0
AWAY = {408, 425, 429, 500, 502, 503, 504}


class Service:
    """A service at an address. Safe to use from several threads."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        environ: Mapping[str, str] = os.environ,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import httpx  # a tenth of a second that those who use no service are spared

        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r}: give the address of a service, as in http://host:7070.")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        netloc = host if parts.port is None else f"{host}:{parts.port}"
        self.address = urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", ""))  # without any secret
        token = token or parts.password or environ.get("ZEUS_TOKEN") or None
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(base_url=self.address, headers=headers, timeout=TIMEOUT)
        self._away = (httpx.TransportError,)
        self._patience = patience
        self._clock = clock
        self._sleep = sleep

    def call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        patience: float | None = None,
    ) -> Any:
        """The answer's JSON, or its text.

        Raises:
            NotKnown, AlreadyDone, InputError: The service refused.
            StoreError: It did not answer within our patience, however often it was asked.
        """
        until = self._clock() + (self._patience if patience is None else patience)
        wait, why = FIRST_WAIT, ""
        while True:
            try:
                answer = self._client.request(
                    method,
                    f"/api/v1{path}",
                    params=None if query is None else dict(query),
                    headers={"Idempotency-Key": key} if key else {},
                    **({"content": body} if isinstance(body, str) else {} if body is None else {"json": body}),
                )
            except self._away as wrong:
                why = str(wrong) or type(wrong).__name__
            else:
                if answer.status_code not in AWAY:
                    return _read(answer)
                why = f"it answered {answer.status_code}"
            pause = wait * random.uniform(0.5, 1.0)  # so that many clients do not come back at one moment
            if self._clock() + pause > until:
                raise StoreError(f"the service {self.address} is away: {why}. Nothing is lost; try again later.")
            self._sleep(pause)
            wait = min(2 * wait, LONGEST_WAIT)

    def close(self) -> None:
        """Let go of connections."""
        self._client.close()


def of_job(job_id: str, rest: str = "") -> str:
    """The path of a job.

    >>> of_job("a/b c", "/ask")
    '/jobs/a%2Fb%20c/ask'
    """
    return f"/jobs/{quote(job_id, safe='')}{rest}"


def _read(answer: Any) -> Any:
    status = answer.status_code
    is_json = "json" in answer.headers.get("content-type", "") and "ndjson" not in answer.headers["content-type"]
    if status < 400:
        return None if status == 204 else answer.json() if is_json else answer.text
    try:
        message = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = f"{answer.request.method} {answer.request.url.path} was answered {status}. Is it a Zeus service?"
    kind = {404: NotKnown, 409: AlreadyDone}.get(status, InputError)
    raise kind(message)
