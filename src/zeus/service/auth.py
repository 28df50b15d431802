"""Who may do what: tokens with a scope, and the sessions of the page.

    zeus_<id>_<secret>       the id finds the row; the hash of the secret is compared in constant time

Programs send the token in a header; old clients send it as a password. A token holds 256 random bits, so a plain
SHA-256 protects it as well as a slow hash protects a password. The page shows its token once and gets a session:
another 256 random bits, kept in a cookie. The store keeps only its hash.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from zeus.errors import InputError
from zeus.store.api import utc
from zeus.store.tokens import Scope, Token, Tokens, TokenSession

COOKIE = "zeus_session"
SESSION_SECONDS = 7 * 86_400
_PERSON = "zeus.person"  # the key under which a request's scope holds its person
_ORDER = list(Scope)  # from the smallest scope to the largest


@dataclass(frozen=True, slots=True)
class Person:
    """Who makes a request."""

    name: str
    scope: Scope

    def may(self, scope: Scope) -> bool:
        """Whether this person's scope includes another."""
        return _ORDER.index(scope) <= _ORDER.index(self.scope)


ANYBODY = Person("anybody", Scope.ADMIN)  # who asks when the service needs no token


def new(name: str, scope: Scope, at: str) -> tuple[Token, str]:
    """Make a token: the row to store, and the secret to show once."""
    if not name or len(name) > 200 or not name.isprintable():
        raise InputError(f"token name {name[:50]!r}: give 1 to 200 printable characters.")
    if name == ANYBODY.name:  # the page shows no logout button for this name
        raise InputError(f"token name {name!r} is reserved for requests without a token. Choose another name.")
    identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return Token(identity, name, scope, _hash(secret), at), f"zeus_{identity}_{secret}"


def check(tokens: Tokens, given: str) -> Person | None:
    """The owner of a token; None if it is unknown or revoked."""
    kind, _, rest = given.partition("_")
    identity, _, secret = rest.partition("_")
    known = tokens.find(identity) if kind == "zeus" and identity.isalnum() and len(identity) <= 32 else None
    same = hmac.compare_digest(_hash(secret), known.hash if known is not None else _hash(""))
    return Person(known.name, known.scope) if known is not None and same and known.revoked_at is None else None


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


def check_session(tokens: Tokens, secret: str, wall: Callable[[], float] = time.time) -> Person | None:
    """The owner of a session; None if it has expired or its token was revoked."""
    session = tokens.session(_hash(secret))
    if session is None or session.until <= utc(wall()):
        return None
    known = tokens.find(session.token_id)
    return None if known is None or known.revoked_at is not None else Person(known.name, known.scope)


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
            allowed, needed = person.scope.value, self.scope.value
            raise HTTPException(403, f"this token has scope {allowed!r}, but this request needs {needed!r}.")
        return person


async def _look(request: Request) -> Person:
    carries = given(request) is not None or COOKIE in request.cookies
    found = await run_in_threadpool(who, request) if carries else _without_token(request)
    if found is None:
        why = "this token is unknown or was revoked" if carries else "this request needs a token"
        message = f"{why}. Make one with `zeus token create`; give it as ZEUS_TOKEN or as `Authorization: Bearer`."
        raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})
    return found


class Guarded(APIRoute):
    """A route that checks the token before it reads the body, which a stranger could make long and slow."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[None, None, Response]]:
        """The handler that FastAPI calls for each request."""
        handle = super().get_route_handler()
        owners = [getattr(one.dependency, "__self__", None) for one in self.dependencies]
        needs = [one for one in owners if isinstance(one, Need)]

        async def guarded(request: Request) -> Response:
            for need in needs:
                await need.person(request)
            return await handle(request)

        return guarded


def who(request: Request) -> Person | None:
    """Who makes a request. A token in the headers decides; a session cookie counts only without one."""
    tokens: Tokens = request.app.state.tokens
    if (token := given(request)) is not None:
        return check(tokens, token)
    cookie = request.cookies.get(COOKIE)
    return (None if cookie is None else check_session(tokens, cookie)) or _without_token(request)


def _without_token(request: Request) -> Person | None:
    return ANYBODY if request.app.state.open else None


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
