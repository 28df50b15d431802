"""Who may do what: bearer tokens with a scope, given by header, by old clients as a password, or by the page's cookie.

    zeus_<id>_<secret>       the id finds the row, whose hash of the secret is compared in constant time

A token holds 256 random bits, so that a plain SHA-256 keeps it as safe as a slow hash keeps a password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from zeus.errors import InputError
from zeus.store.tokens import Scope, Token, Tokens

COOKIE = "zeus_token"
_ORDER = list(Scope)  # each may do what those before it may


@dataclass(frozen=True, slots=True)
class Person:
    """Who is asking, as far as it matters."""

    name: str
    scope: Scope

    def may(self, scope: Scope) -> bool:
        """Whether this scope is within theirs."""
        return _ORDER.index(scope) <= _ORDER.index(self.scope)


ANYBODY = Person("anybody", Scope.ADMIN)  # where the service is open


def new(name: str, scope: Scope, at: str) -> tuple[Token, str]:
    """A token to keep, and the secret to hand out once."""
    if not name or len(name) > 200 or not name.isprintable():
        raise InputError(f"token name {name[:50]!r}: give 1 to 200 printable characters.")
    if name == ANYBODY.name:  # by this name the page knows that there is nobody to log out
        raise InputError(f"token name {name!r} stands for whoever comes without a token: choose another.")
    identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return Token(identity, name, scope, _hash(secret), at), f"zeus_{identity}_{secret}"


def check(tokens: Tokens, given: str) -> Person | None:
    """Whose token this is; None for a wrong or revoked one."""
    kind, _, rest = given.partition("_")
    identity, _, secret = rest.partition("_")
    known = tokens.find(identity) if kind == "zeus" and identity.isalnum() and len(identity) <= 32 else None
    same = hmac.compare_digest(_hash(secret), known.hash if known is not None else _hash(""))
    return Person(known.name, known.scope) if known is not None and same and known.revoked_at is None else None


def given(request: Request) -> str | None:
    """The token that a program gives: a bearer's, or as a password."""
    kind, _, value = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and value:
        return value.strip()
    if kind.lower() == "basic" and value:
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return None


def need(scope: Scope) -> Callable[[Request], Awaitable[Person]]:
    """A dependency of a route: who is asking, if they may."""

    async def person(request: Request) -> Person:
        carries = given(request) is not None or COOKIE in request.cookies
        found = await run_in_threadpool(who, request) if carries else _without_token(request)
        if found is None:
            why = "this token is wrong or was revoked" if carries else "this needs a token"
            message = f"{why}: see `zeus token create`, and give it as ZEUS_TOKEN or `Authorization: Bearer`."
            raise HTTPException(401, message, {"WWW-Authenticate": "Bearer"})
        if not found.may(scope):
            raise HTTPException(403, f"this token's scope is {found.scope.value!r}; {scope.value!r} is needed here.")
        return found

    return person


def who(request: Request) -> Person | None:
    """Who is asking. A token that a program gives is meant, and counts; a cookie may be of another day."""
    tokens: Tokens = request.app.state.tokens
    if (token := given(request)) is not None:
        return check(tokens, token)
    cookie = request.cookies.get(COOKIE)
    return (None if cookie is None else check(tokens, cookie)) or _without_token(request)


def _without_token(request: Request) -> Person | None:
    return ANYBODY if request.app.state.open else None


def check_origin(request: Request, hosts: frozenset[str]) -> str | None:
    """Why a request is not served: a name that is not ours, or another page that speaks through somebody's browser."""
    host, headers = request.headers.get("host", "").lower(), request.headers
    name = _name_of(host)
    if hosts and name not in hosts:
        return f"host {name[:100]!r} is not served here; start with --allow-host {name[:100]} to serve it."
    origin = headers.get("origin")
    foreign = origin is not None and _place_of(origin) != host
    # Without an Origin, as for a picture whose address is ours, browsers say this. Links to the page itself are fine.
    foreign |= headers.get("sec-fetch-site") in ("cross-site", "same-site") and request.url.path != "/"
    return "this request comes from a page of another site." if foreign else None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

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
    """Without the port.

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
