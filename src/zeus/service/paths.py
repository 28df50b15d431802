"""A job's name may hold a slash: `team%2Fasr` in a path is one part of it, not two."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send


class WholeParts:
    """Leaves encoded slashes encoded, which a server would decode before the route is found; routes decode names."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and b"%" in scope.get("raw_path", b""):
            scope["path"] = split_safely(scope["raw_path"].partition(b"?")[0].decode("latin-1"))
        await self.app(scope, receive, send)


def split_safely(raw: str) -> str:
    """A path decoded except for what would change its parts.

    >>> split_safely("/jobs/team%2Fasr%20v2"), unquote(split_safely("/jobs/100%25%2F2"))
    ('/jobs/team%2Fasr v2', '/jobs/100%/2')
    """
    kept = raw.replace("%25", "%2525").replace("%2f", "%2F").replace("%2F", "%252F")
    return unquote(kept)
