"""Who may do what: tokens with a scope, and the sessions of the page.

    zeus_<id>_<secret>       the id finds the row; the hash of the secret is compared in constant time

Programs send the token in a header; old clients send it as a password. A token holds 256 random bits, so a plain
SHA-256 protects it as well as a slow hash protects a password. The page shows its token once and gets a session:
another 256 random bits, kept in a cookie. The store keeps only its hash. People may also sign in through a proxy
(`proxy_sign_in`). Whatever a route changes is done as the person who asks (`zeus.store.actor`).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from urllib.parse import urlsplit

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from zeus.errors import InputError, StoreError
from zeus.service.person import ANYBODY, Person, Rejected, of_token
from zeus.service.proxy_sign_in import ProxySignIn
from zeus.store.actor import TEAM, acting
from zeus.store.api import utc
from zeus.store.tokens import Scope, Token, Tokens, TokenSession

COOKIE = "zeus_session"
SESSION_SECONDS = 7 * 86_400
_PERSON = "zeus.person"  # the key under which a request's scope holds its person
UNKNOWN = Rejected("this token is unknown or was revoked")
USED_SECONDS = 60.0  # the use of a token is written down at most once in so many seconds


def new(name: str, scope: Scope, at: str, *, team: str = "", lasts: timedelta | None = None) -> tuple[Token, str]:
    """Make a token: the row to store, and the secret to show once.

    Args:
        name: Whose token it is.
        scope: What it allows.
        at: The time.
        team: Whose jobs it may change, besides its own.
        lasts: How long it is accepted; None: until it is revoked.
    """
    for what, text in (("name", name), ("team", team)):
        if len(text) > 200 or not text.isprintable() or TEAM in text or not (text or what == "team"):
            raise InputError(f"token {what} {text[:50]!r}: give 1 to 200 printable characters without a slash.")
    if name == ANYBODY.name:  # the page shows no logout button for this name
        raise InputError(f"token name {name!r} is reserved for requests without a token. Choose another name.")
    identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    until = None if lasts is None else utc((datetime.fromisoformat(at) + lasts).timestamp())
    return Token(identity, name, scope, _hash(secret), at, None, team, until), f"zeus_{identity}_{secret}"


def check(tokens: Tokens, given: str, wall: Callable[[], float] = time.time) -> Person | Rejected:
    """The owner of a token."""
    kind, _, rest = given.partition("_")
    identity, _, secret = rest.partition("_")
    known = tokens.find(identity) if kind == "zeus" and identity.isalnum() and len(identity) <= 32 else None
    same = hmac.compare_digest(_hash(secret), known.hash if known is not None else _hash(""))
    return _accepted(tokens, known, wall()) if same and known is not None else UNKNOWN


def _accepted(tokens: Tokens, known: Token, now: float, by: Literal["token", "session"] = "token") -> Person | Rejected:
    """The owner of a token whose secret was shown, unless the token is no longer valid. Notes that it was used."""
    match known.state(utc(now)):
        case "revoked":
            return UNKNOWN
        case "expired":
            day = datetime.fromisoformat(known.expires_at or "").astimezone(UTC)
            return Rejected(f"this token expired on {day:%Y-%m-%d at %H:%M} UTC")
    if known.used_at is None or known.used_at < utc(now - USED_SECONDS):
        with contextlib.suppress(StoreError):  # it is busy or read-only: the request itself may still be answered
            tokens.used(known.id, utc(now))
    return of_token(known, by)


def given(request: Request) -> str | None:
    """The token in a request's headers, as a bearer token or as a password; None if there is none."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value:
        return value.strip()
    if kind.lower() == "basic" and value:
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return None


def begin_session(tokens: Tokens, token: str, wall: Callable[[], float] = time.time) -> str:
    """Begin a session for a token that was checked. Returns the value of its cookie."""
    secret, now = secrets.token_urlsafe(32), wall()
    session = TokenSession(_hash(secret), token.split("_")[1], utc(now + SESSION_SECONDS))
    tokens.begin(session, utc(now))
    return secret


def end_session(tokens: Tokens, secret: str) -> None:
    tokens.end(_hash(secret))


def check_session(tokens: Tokens, secret: str, wall: Callable[[], float] = time.time) -> Person | Rejected:
    """The owner of a session, unless it or its token has ended."""
    session = tokens.session(_hash(secret))
    if session is None or session.until <= utc(wall()):
        return Rejected("the session has ended")
    known = tokens.find(session.token_id)
    return UNKNOWN if known is None else _accepted(tokens, known, wall(), "session")


@dataclass(frozen=True, slots=True)
class Need:
    """The scope that a route requires."""

    scope: Scope

    async def person(self, request: Request) -> Person:
        """The route's dependency: who asks, if their scope suffices. Looked up once per request."""
        if _PERSON not in request.scope:
            request.scope[_PERSON] = await _look(request)
        person: Person = request.scope[_PERSON]
        if not person.may(self.scope):
            has, allowed = "you have" if person.by == "proxy" else "this token has", person.scope.value
            raise HTTPException(403, f"{has} scope {allowed!r}, but this request needs {self.scope.value!r}.")
        return person


async def _look(request: Request) -> Person:
    carries = given(request) is not None or COOKIE in request.cookies
    found = await run_in_threadpool(who, request) if carries else _without_token(request)
    if isinstance(found, Rejected):
        advice = "Make one with `zeus token create`; give it as ZEUS_TOKEN or as `Authorization: Bearer`."
        raise HTTPException(401, f"{found.why}. {advice}", {"WWW-Authenticate": "Bearer"})
    return found


class Guarded(APIRoute):
    """A route that checks the token before it reads the body, which a stranger could make long and slow."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """The handler that FastAPI calls for each request."""
        handle = super().get_route_handler()
        owners = [getattr(one.dependency, "__self__", None) for one in self.dependencies]
        needs = [one for one in owners if isinstance(one, Need)]

        async def guarded(request: Request) -> Response:
            if not needs:
                return await handle(request)
            for need in needs:
                person = await need.person(request)
            place = request.client.host if request.client is not None else ""
            with acting(person.actor(place)):
                return await handle(request)

        return guarded


def who(request: Request) -> Person | Rejected:
    """Who makes a request. A token in the headers decides; a session cookie counts only without one.

    A password counts as a token only if the proxy does not say who signed in: it may be the one shown to the proxy.
    """
    tokens: Tokens = request.app.state.tokens
    if (token := given(request)) is not None and (_is_bearer(request) or _signed_in(request) is None):
        return check(tokens, token)
    cookie = request.cookies.get(COOKIE)
    found = None if cookie is None else check_session(tokens, cookie)
    if isinstance(found, Person):
        return found
    without = _without_token(request)
    return without if found is None or isinstance(without, Person) else found


def _is_bearer(request: Request) -> bool:
    return request.headers.get("authorization", "").lower().startswith("bearer ")


def _signed_in(request: Request) -> Person | Rejected | None:
    sign_in: ProxySignIn = request.app.state.proxy_sign_in
    return sign_in.person(request)


def _without_token(request: Request) -> Person | Rejected:
    if (found := _signed_in(request)) is not None:
        return found
    return ANYBODY if request.app.state.open else Rejected("this request needs a token")


def check_origin(request: Request, hosts: frozenset[str]) -> str | None:
    """Why a request is refused: it names another host, or another site's page sent it; None if it is fine."""
    host, headers = request.headers.get("host", "").lower(), request.headers
    name = _name_of(host)
    if hosts and name not in hosts:
        return f"host {name[:100]!r} is not served here. To serve it, start with --allow-host {name[:100]}."
    origin = headers.get("origin")
    foreign = origin is not None and _place_of(origin) != host
    # Browsers send this header where they send no Origin, as for an image. Links to the page itself are fine.
    foreign |= headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.url.path != "/"
    return "this request was sent by a page of another site." if foreign else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _name_of(host: str) -> str:
    """A Host header without its port.

    >>> _name_of("localhost:7070"), _name_of("[::1]:7070")
    ('localhost', '[::1]')
    """
    if host.startswith("["):
        return host[: host.find("]") + 1]
    return host.partition(":")[0].lower()


def _place_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
