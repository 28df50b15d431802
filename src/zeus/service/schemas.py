"""What the routes accept in paths and queries, how they read a body, and the errors they answer with.

Bodies are values (`zeus.client.bodies`): their types say what is read, what is refused, and what OpenAPI shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, FastAPI, Request
from pydantic import AfterValidator, BaseModel, Field
from starlette.exceptions import HTTPException

from zeus.client.bodies import AskBody, read_body
from zeus.errors import InputError
from zeus.job import JobSpec, Outcome
from zeus.job.checks import DOTS, NAME_LENGTH, SHOWN
from zeus.job.wire import KINDS, VERSION, parse, read
from zeus.profile import ProfileFile

T = TypeVar("T")
REF = "#/components/schemas/"
JSON = "application/json"
BODIES: dict[str, type[Any]] = {}  # by name: what the routes read
EXAMPLES: dict[type[Any], dict[str, Any]] = {
    JobSpec: {
        "job_id": "sentiment",
        "job_id_prefix": "sentiment",
        "batch_sizes": [8, 16, 32, 64, 128],
        "default_batch_size": 32,
        "target_metric": 0.84,
        "max_epochs": 10,
    },
    AskBody: {"gpu_name": "Tesla V100", "gpus": 1, "max_watts": 250},
    Outcome: {"ending": "converged", "joules": 5.2e6, "seconds": 31000, "epochs": 7, "metric": 0.843},
    ProfileFile: {"measurements": [{"power_limit": 250, "energy": 2053.7, "time": 9.2, "steps": 40}]},
}


def _no_dots(name: str) -> str:
    if name in DOTS:
        raise ValueError("give a name that is not . or ..")
    return name


Name = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH, pattern=f"^{SHOWN}+$"), AfterValidator(_no_dots)]
Text = Annotated[str, Field(max_length=NAME_LENGTH, pattern=f"^{SHOWN}*$")]
Key = Annotated[str, Field(min_length=1, max_length=NAME_LENGTH, pattern=r"^[\x21-\x7e]+$")]


def body(kind: type[T]) -> Any:
    """Annotates a route's parameter that holds the request's body, read as this type."""
    BODIES[kind.__name__] = kind

    async def checked(request: Request) -> T:
        found: T = read_body(await _json(request), kind)
        return found

    return Depends(checked)


async def _json(request: Request) -> Any:
    """The body. Clients of the existing package do not say that it is JSON."""
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON:
        raise InputError(f"content-type={kind!r}: send {JSON}.")
    try:
        return parse(await request.body())
    except InputError as wrong:
        raise HTTPException(400, f"the body {wrong}") from wrong


async def _object(request: Request) -> dict[str, Any]:
    return read(await _json(request), dict[str, Any])


json_body: Any = Depends(_object)  # annotates a body of any fields


def takes(kind: type[Any]) -> dict[str, Any]:
    """What OpenAPI shows of a route that reads this body."""
    content = {"application/json": {"schema": {"$ref": f"{REF}{kind.__name__}"}}}
    return {"requestBody": {"content": content, "required": True}}


def describe_bodies(app: FastAPI) -> None:
    """Add the bodies to the application's OpenAPI document."""
    make: Callable[[], dict[str, Any]] = app.openapi

    def openapi() -> dict[str, Any]:
        document = make()
        _, found = msgspec.json.schema_components(BODIES.values(), ref_template=f"{REF}{{name}}")
        for kind in (JobSpec, Outcome):  # they may say what they are
            found[kind.__name__]["properties"] |= {"kind": {"const": KINDS[kind]}, "version": {"const": VERSION}}
        for kind, example in EXAMPLES.items():
            found[kind.__name__]["examples"] = [example]
        document["components"]["schemas"] |= found
        return document

    app.openapi = openapi  # type: ignore[method-assign]


# ---------------------------------------------------------------------- errors, for the OpenAPI document


class Wrong(BaseModel):
    """An error's code, and what to do about it."""

    code: str
    message: str


class Problem(BaseModel):
    """An error of /api/v1."""

    error: Wrong


class Message(BaseModel):
    """An error of the five old routes."""

    message: str


STATUSES = {
    400: "The body is not JSON.",
    401: "A token is needed, or the one given is unknown or revoked.",
    403: "The token's scope is too small, or a page of another site sent the request.",
    404: "There is no such job, trial or profile.",
    408: "The body arrived too slowly.",
    409: "The store already holds a different result; it was not overwritten.",
    413: "The body is too large.",
    422: "The request is invalid; the message says why.",
    429: "Too many requests from one client.",
    503: "The store did not answer. Try again.",
}


def problems(
    shape: type[BaseModel] = Problem, only: Iterable[int] = tuple(STATUSES)
) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route, for the OpenAPI document."""
    return {status: {"model": shape, "description": STATUSES[status]} for status in only}
