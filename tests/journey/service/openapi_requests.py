"""One test for each route of the OpenAPI: boundary values, then requests drawn at random. test_schema.py runs it.

ZEUS_SCHEMA_EXAMPLES says how many are drawn for each route; a few here, thousands in `make bench`.
"""

from __future__ import annotations

import os

import hypothesis
import pytest
import schemathesis
import schemathesis.checks
from hypothesis import HealthCheck
from starlette.types import Receive, Scope, Send

from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.job import Ending, Gpus, JobSpec, Outcome
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.service.app import Settings, create
from zeus.store import MemoryStore

EXAMPLES = int(os.environ.get("ZEUS_SCHEMA_EXAMPLES", "4"))
schemathesis.checks.load_all_checks()
CHECKS = schemathesis.checks.CHECKS.get_by_names(
    ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)


@schemathesis.serializer("application/x-ndjson")
def lines(_: object, value: object) -> bytes:
    """Of JSON, or of whatever it is."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def furnished() -> MemoryStore:
    """With the job of the examples on it, so that some requests find what they ask for."""
    store = MemoryStore()
    sizes = (8, 16, 32, 64, 128)
    spec = JobSpec(job_id="sentiment", job_id_prefix="s", batch_sizes=sizes, default_batch_size=32, mab_seed=0)
    job = RecurringJob.register(LocalJobs(store), spec)
    for joules in (5.0, 6.0):
        number = job.ask(Gpus("Tesla V100", 1, 250.0)).number
        job.tell(number, Outcome(ending=Ending.CONVERGED, joules=joules, seconds=1.0, epochs=2))
    job.ask(Gpus("Tesla V100", 1, 250.0))
    job.put(ProfileKey("sentiment", 32, "Tesla V100", 1), PowerProfile.of([LimitSlice(250.0, 10, 1.0, 200.0)]))
    return store


class Anew:
    """The service, and before each route's test another one: what was done to the last does not depend on the order."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._app = create(furnished(), Settings(per_second=0))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


service = Anew()
schema = schemathesis.openapi.from_asgi("/openapi.json", service)


@pytest.fixture(autouse=True)
def anew() -> None:
    service.begin()


@schema.parametrize()
@hypothesis.settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_whatever_is_sent_is_answered_as_documented(case: schemathesis.Case) -> None:
    case.call_and_validate(checks=CHECKS)
