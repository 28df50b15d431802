"""Serves the page and plotly's script from the installed packages. The page loads nothing from other sites."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.staticfiles import StaticFiles

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
FILES = StaticFiles(packages=[("zeus.service.dashboard", "static"), ("plotly", "package_data")])


@routes.get("/")
async def index(request: Request) -> Response:
    """The page. It gets its data from /api/v1, which asks for a token if one is needed."""
    return await static(request, "index.html")


@routes.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """The page's script and style, and plotly."""
    response = await FILES.get_response(name, request.scope)
    response.headers.update({"Cache-Control": "no-cache", "Content-Security-Policy": POLICY})
    return response


def read(name: str) -> str:
    """A file of the page, or plotly's script."""
    path, found = FILES.lookup_path(name)
    assert found is not None, name
    return Path(path).read_text(encoding="utf-8")
