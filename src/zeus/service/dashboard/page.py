"""Serves the page and plotly's script from the installed packages. The page loads nothing from other sites."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib import resources

from fastapi import APIRouter, HTTPException, Request, Response

routes = APIRouter(include_in_schema=False)

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
# The modules of the page's script, each after those whose values it needs at once.
MODULES = (
    "format.js",
    "dom.js",
    "embedded.js",
    "api.js",
    "saving_files.js",
    "charts.js",
    "list_table.js",
    "list.js",
    "trials.js",
    "curves.js",
    "job_charts.js",
    "limit_charts.js",
    "settings.js",
    "actions.js",
    "audit.js",
    "job.js",
    "compare.js",
    "fleet.js",
    "tokens.js",
    "session.js",
    "app.js",
)
STYLES = ("style.css", "views.css", "screens.css")
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@routes.get("/")
def index(request: Request) -> Response:
    """The page. It gets its data from /api/v1, which asks for a token if one is needed."""
    return _answer(request, "index.html")


@routes.get("/static/{name}")
def static(request: Request, name: str) -> Response:
    """The page's script and style, and plotly."""
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    found = _file(name)
    if found is None:
        raise HTTPException(404, "there is no such file.")
    packed, tag = found
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Security-Policy": POLICY, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    body = packed
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        body = gzip.decompress(packed)
    kind = TYPES.get(name[name.rfind(".") :], "application/octet-stream")
    return Response(body, headers=headers, media_type=kind)


@cache
def _file(name: str) -> tuple[bytes, str] | None:
    """A compressed file and its ETag, computed once."""
    text = read(name)
    if text is None:
        return None
    return gzip.compress(text, 6), f'"{hashlib.sha256(text).hexdigest()[:20]}"'


def read(name: str) -> bytes | None:
    """A file of the page, or plotly's script; None for any other name."""
    if name == "plotly.min.js":
        return resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    known = {one.name: one for one in resources.files("zeus.service.dashboard").joinpath("static").iterdir()}
    return known[name].read_bytes() if name in known else None
