"""HTTP connection to a service. Refusals become Zeus's own exceptions.

    request ──▶ a Zeus answer ──▶ its content, or NotKnown, AlreadyDone, NotAllowed, InputError
          └───▶ no answer, or not from Zeus ──▶ StoreError, after which `zeus.client.resilient.jobs` may try again

Only answers in the service's own format count. A proxy may answer 404 while the service restarts: that means that the
service is unreachable, not that a job is unknown.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from zeus import settings
from zeus.client.resilient.retry import Failed
from zeus.errors import AlreadyDone, Forbidden, InputError, NotAllowed, NotKnown, StoreError
from zeus.job.checks import need_job_id
from zeus.job.wire import VERSION
from zeus.store.address import shown
from zeus.store.wait_limit import allowed, at_most

T = TypeVar("T")

AWAY = {408, 425, 429, 500, 502, 503, 504}
ANSWER_SECONDS = 120.0  # for which an answer is waited for, if the caller sets no limit (`zeus.store.wait_limit`)


class OlderService(InputError):
    """The service does not know this request, because it is older than this Zeus."""


# Which HTTP status stands for which error: the service writes them, its clients read them.
ERRORS: dict[int, type[InputError]] = {
    401: NotAllowed,
    403: Forbidden,
    404: NotKnown,
    409: AlreadyDone,
}
OTHER = 422  # any other InputError


def status_of(error: InputError) -> int:
    """The status of an answer about this error.

    >>> status_of(NotKnown("no such job")), status_of(InputError("eta=2")), status_of(Forbidden("read only"))
    (404, 422, 403)
    """
    return {kind: status for status, kind in ERRORS.items()}.get(type(error), OTHER)


def error_of(status: int) -> type[InputError]:
    """The error that an answer of this status stands for.

    >>> error_of(404).__name__, error_of(401).__name__, error_of(400).__name__
    ('NotKnown', 'NotAllowed', 'InputError')
    """
    return ERRORS.get(status, InputError)


class Connection:
    """Connection to the service at an address. Safe to use from several threads.

    Args:
        url: Address, such as http://host:7070 or http://:TOKEN@host:7070.
        environ: Environment with ZEUS_TOKEN.

    Raises:
        InputError: The address or the token is not valid.
    """

    def __init__(self, url: str, *, environ: Mapping[str, str] = settings.HERE) -> None:
        import httpx  # takes a tenth of a second to load, and only a service needs it

        self.address, password = _parts(url)
        token = password or settings.token(environ)
        if not (token.isascii() and token.isprintable() and " " not in token):
            raise InputError(f"the token for {self.address} is not valid. Set ZEUS_TOKEN to one that the service made.")
        headers = {"Zeus-Wire": str(VERSION), **({"Authorization": f"Bearer {token}"} if token else {})}
        self._client = httpx.Client(base_url=self.address, headers=headers)
        self.close = weakref.finalize(self, self._client.close)
        self._away = (httpx.TransportError, httpx.DecodingError)

    def call(
        self,
        method: str,
        path: str,
        read: Callable[[Any], T],
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Send a request and return what `read` makes of the answer.

        Args:
            method: HTTP method.
            path: Path below /api/v1.
            read: Converts the answer's JSON or text. An answer that it cannot convert counts as no answer.
            body: JSON value, or a text that is sent as it is.
            query: Query parameters.
            key: Idempotency key: retries of the request send the same key, so that it takes effect once.
            headers: More headers.

        Raises:
            NotKnown, AlreadyDone, NotAllowed, InputError: The service refused.
            StoreError: The service is unreachable or failed.
        """
        try:
            more = {} if key is None else {"Idempotency-Key": key}
            return self._request(method, path, read, body, query, {**more, **(headers or {})})
        except StoreError as away:
            raise type(away)(f"the service {self.address} {away}.") from away
        except OlderService:
            raise OlderService(
                f"the service {self.address} does not know {method} {path}: it is older than this Zeus. Update it."
            ) from None

    def _request(
        self,
        method: str,
        path: str,
        read: Callable[[Any], T],
        body: Any,
        query: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> T:
        content: dict[str, Any] = {} if body is None else {"content" if isinstance(body, str) else "json": body}
        try:
            timeout = allowed(ANSWER_SECONDS)
            answer = self._client.request(
                method, f"/api/v1{path}", params=query, headers=headers, timeout=timeout, **content
            )
        except self._away as wrong:
            raise StoreError(f"cannot be reached: {str(wrong) or type(wrong).__name__}") from wrong
        if not answer.is_success:
            raise _refusal(answer)
        try:
            return read(_content(answer))
        except (InputError, LookupError, TypeError, ValueError, AttributeError) as wrong:
            raise StoreError(f"sent an answer that Zeus cannot read ({wrong})") from wrong

    def check(self) -> None:
        """Raise unless a training could use the service. It is not waited for longer than a training would wait."""
        with at_most(settings.time_limits().store_answer):
            scope = self.call("GET", "/me", lambda data: data["scope"])
        if scope is None:
            raise NotAllowed(
                f"the service {self.address} does not accept this client: set ZEUS_TOKEN to one of its tokens."
            )
        if scope == "read":
            raise NotAllowed(f"the token for {self.address} may only read; training needs `report`.")


def of_job(job_id: str, rest: str = "") -> str:
    """The path of a job, quoted. InputError if no service could have a job of this name.

    >>> of_job("a/b c", "/ask")
    '/jobs/a%2Fb%20c/ask'
    """
    need_job_id(job_id)  # "" or ".." would be another path
    return f"/jobs/{quote(job_id, safe='')}{rest}"


def _parts(url: str) -> tuple[str, str]:
    """Split a URL into the address without the secret, and the secret.

    >>> _parts("http://:zeus_1@host:7070/")
    ('http://host:7070', 'zeus_1')
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:  # an invalid port
        host, port = "", None
    if not host or parts.scheme not in ("http", "https"):
        raise InputError(f"{shown(url)} is not the address of a service. Give one such as http://host:7070.")
    netloc = (f"[{host}]" if ":" in host else host) + ("" if port is None else f":{port}")
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", "")), unquote(parts.password or "")


def _content(answer: Any) -> Any:
    """The JSON or text of an answer in the service's format. Raises ValueError for any other."""
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if answer.status_code == 204:  # done, no content
        return None
    match kind:
        case "application/json":
            return answer.json()
        case "application/x-ndjson":
            return answer.text
    raise ValueError(f"content type {kind or 'unknown'}")


def _refusal(answer: Any) -> InputError | StoreError:
    status = answer.status_code
    if answer.is_redirect:
        return StoreError(f"redirects to {answer.headers.get('location')}; if that is its address, use it")
    try:
        message = str(answer.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return StoreError(f"answered with status {status}, but not as a Zeus service does")
    if status in AWAY:
        return (Failed if status == 500 else StoreError)(f"answered with an error ({status}): {message}")
    if status in (404, 405) and message in ("Not Found", "Method Not Allowed"):
        return OlderService(message)
    return error_of(status)(message)
