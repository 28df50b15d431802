"""Errors as HTTP answers: the one place that decides status and message. No stack trace is ever sent.

    NotKnown 404 · AlreadyDone 409 · InputError and invalid requests 422 · any other ZeusError 503
    anything else 500, sent by the outermost layer (`middleware`)

The messages of 503 and 500 are fixed, because strangers may read them. The log has the details.
`/api/v1` answers `{"error": {"code", "message"}}`; the five old routes answer `{"message"}`, as their clients expect.
"""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from zeus.client.connection import status_of
from zeus.errors import InputError, StoreUnusable, ZeusError

log = logging.getLogger(__name__)

OLD = ("/jobs", "/report", "/trials")
NAMES = {
    400: "bad_request",
    401: "no_token",
    403: "not_allowed",
    404: "not_known",
    405: "no_such_method",
    408: "too_slow",
    409: "already_done",
    413: "too_large",
    422: "bad_input",
    429: "too_many",
    500: "failed",
    503: "store_away",
}
RETRY_SECONDS = "1"
AWAY = "the store did not answer. Try again; the service's log has the reason."
LENGTH = 2000  # characters of a message, which may quote what a user typed


def answer(path: str, status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error in the form that the clients of this path expect."""
    message = message[:LENGTH].encode(errors="replace").decode()  # JSON input can hold lone surrogates
    if path.startswith(OLD):
        return JSONResponse({"message": message}, status, headers)
    return JSONResponse({"error": {"code": NAMES.get(status, "failed"), "message": message}}, status, headers)


def install(app: FastAPI) -> None:
    """Turn the errors that routes raise into answers."""

    async def zeus_error(request: Request, wrong: Exception) -> JSONResponse:
        if isinstance(wrong, InputError) and not isinstance(wrong, StoreUnusable):
            return answer(request.url.path, status_of(wrong), str(wrong))
        log.warning("the store did not answer: %s", wrong)
        return answer(request.url.path, 503, AWAY, {"Retry-After": RETRY_SECONDS})

    async def refused(request: Request, wrong: Exception) -> JSONResponse:
        assert isinstance(wrong, RequestValidationError)
        return answer(request.url.path, 422, "; ".join(_said(one) for one in wrong.errors()[:5]))

    async def http(request: Request, wrong: Exception) -> JSONResponse:
        assert isinstance(wrong, HTTPException)
        return answer(request.url.path, wrong.status_code, str(wrong.detail), dict(wrong.headers or {}))

    app.add_exception_handler(ZeusError, zeus_error)
    app.add_exception_handler(RequestValidationError, refused)
    app.add_exception_handler(HTTPException, http)


def _said(one: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in one["loc"] if part != "body") or "body"
    return f"{where}: {one['msg']}"
