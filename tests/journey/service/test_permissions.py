"""Who may do what: every route, asked by everybody there can be, and the audit after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from support.live import AT, PLACE, SPEC, bearer
from support.store_places import HERE, ask
from zeus.job import JobSpec
from zeus.job.wire import read
from zeus.service import auth
from zeus.service.app import Settings, create
from zeus.service.proxy_sign_in import PEER
from zeus.store import MemoryStore
from zeus.store.actor import Actor, acting
from zeus.store.tokens import Scope

ASR = "/api/v1/jobs/{job_id}"
TRIAL = f"{ASR}/trials/{{number}}"
OWNER = "vision/alice"
END = {"ending": "converged", "joules": 10.0, "seconds": 1.0, "epochs": 1, "metric": 0.9}
PROFILE = {"measurements": [{"power_limit": 250, "energy": 2053.7, "time": 9.2, "steps": 40}]}
KEY = "?batch_size=16&gpu_model=V100&gpu_count=1"
OLD = {"job_id": "asr", "batch_size": 8, "trial_number": 1}
RUN = {**PLACE, "spec": SPEC, "batch_size": 16, "key": "k", "outcome": END}


@dataclass(frozen=True)
class Route:
    """A route: who may use it, what to send, and what the audit then says."""

    to: str  # "free", "read", "new", "change", "remove" or "admin"
    body: Any = None
    query: str = ""
    audited: str | None = None


ROUTES = {
    ("GET", "/healthz"): Route("free"),
    ("GET", "/readyz"): Route("free"),
    ("POST", "/login"): Route("free", {"token": "x"}),
    ("POST", "/logout"): Route("free"),
    ("GET", "/api/v1/me"): Route("free"),
    ("GET", "/metrics"): Route("read"),
    ("GET", "/api/v1/jobs"): Route("read"),
    ("GET", "/api/v1/pulse"): Route("read"),
    ("GET", "/api/v1/summary"): Route("read"),
    ("GET", "/api/v1/fleet"): Route("read"),
    ("GET", "/api/v1/export"): Route("read"),
    ("GET", ASR): Route("read"),
    ("GET", f"{ASR}/registration"): Route("read"),
    ("GET", f"{ASR}/beliefs"): Route("read"),
    ("GET", f"{ASR}/audit"): Route("read"),
    ("GET", f"{ASR}/profiles"): Route("read", query=KEY),
    ("GET", f"{ASR}/profiles/all"): Route("read"),
    ("GET", f"{ASR}/trials"): Route("read"),
    ("GET", TRIAL): Route("read"),
    ("GET", f"{TRIAL}/knowledge"): Route("read"),
    ("GET", f"{TRIAL}/log"): Route("read"),
    ("POST", "/api/v1/jobs"): Route("change", {"spec": {**SPEC, "eta_knob": 0.9}}, audited="changed"),
    ("PATCH", ASR): Route("change", {"paused": True}, audited="paused"),
    ("POST", f"{ASR}/ask"): Route("change", PLACE),
    ("POST", f"{TRIAL}/heartbeat"): Route("change", {}),
    ("POST", f"{TRIAL}/tell"): Route("change", END),
    ("PUT", f"{TRIAL}/log"): Route("change", {"text": "epoch 1"}),
    ("POST", f"{ASR}/reports"): Route("change", RUN),
    ("POST", f"{ASR}/profiled"): Route("change", {**PLACE, "batch_size": 16, "joules": 1.0, "seconds": 1.0}),
    ("PUT", f"{ASR}/profiles"): Route("change", PROFILE, KEY),
    ("POST", f"{ASR}/excuse"): Route("change", {"trials": [1]}, audited="excused"),
    ("POST", "/jobs"): Route("change", {**SPEC, "max_power": 250.0}),
    ("GET", "/jobs/batch_size"): Route("change", query="?job_id=asr"),
    ("POST", "/report"): Route("change", {**OLD, "time": 1.0, "energy": 1.0, "metric": 0.1, "current_epoch": 1}),
    ("PATCH", "/trials"): Route("change", OLD),
    ("POST", f"{ASR}/reset"): Route("remove", {}, audited="reset"),
    ("POST", f"{ASR}/pardon"): Route("remove", {"batch_size": 8}, audited="pardoned"),
    ("DELETE", ASR): Route("remove", audited="removed"),
    ("DELETE", "/jobs"): Route("remove", query="?job_id=asr", audited="removed"),
    ("POST", "/api/v1/import"): Route("admin"),
    ("GET", "/api/v1/tokens"): Route("admin"),
    ("GET", "/api/v1/audit"): Route("admin"),
}
# What each may use of a job of alice's, and of one that is nobody's.
CALLERS = {
    "nobody": ("free",),
    "expired": ("free",),
    "read": ("free", "read"),
    "proxy": ("free", "read"),
    "stranger": ("free", "read"),
    "owner": ("free", "read", "change", "remove"),
    "teammate": ("free", "read", "change", "remove"),
    "admin": ("free", "read", "change", "remove", "admin"),
}
NAMES = {"stranger": "carol", "owner": OWNER, "teammate": "vision/bob", "admin": "root"}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def callers(store: MemoryStore) -> dict[str, dict[str, str]]:
    """The headers of each caller."""

    def headers(name: str, scope: Scope, team: str = "", days: int | None = None) -> dict[str, str]:
        kept, secret = auth.new(name, scope, AT, team=team, lasts=None if days is None else timedelta(days))
        store.tokens.add(kept)
        return bearer(secret)

    return {
        "nobody": {},
        "expired": headers("dave", Scope.ADMIN, days=1),
        "read": headers("eve", Scope.READ, "vision"),
        "proxy": {"X-Forwarded-User": "frank"},
        "stranger": headers("carol", Scope.REPORT),
        "owner": headers("alice", Scope.REPORT, "vision"),
        "teammate": headers("bob", Scope.REPORT, "vision"),
        "admin": headers("root", Scope.ADMIN),
    }


@pytest.fixture
def client(store: MemoryStore) -> TestClient:
    """The service, reached through a proxy at 10.0.0.1 that signs people in."""
    app = create(store, Settings(open=False, proxy_user_header="X-Forwarded-User", trusted_proxies=("10.0.0.0/24",)))

    async def behind(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        scope[PEER] = "10.0.0.1"
        await app(scope, receive, send)

    asked: Callable[..., Awaitable[None]] = behind
    return TestClient(asked)


def begin(store: MemoryStore, owner: str) -> int:
    """A job of this owner, in place of any before, with an open trial: its number."""
    if store.names().page:
        store.forget("asr")
    team, _, name = owner.rpartition("/")
    with acting(Actor(name, "10.0.0.9", owner, team)):
        store.register(read(SPEC, JobSpec))
        store.set_client_gpus("asr", HERE.gpus)
        return ask(store).number


@pytest.mark.parametrize("owner", [OWNER, ""], ids=["of alice", "of nobody"])
@pytest.mark.parametrize("caller", CALLERS)
def test_every_route_is_open_to_whom_it_is_for_and_to_nobody_else(
    client: TestClient, store: MemoryStore, callers: dict[str, dict[str, str]], caller: str, owner: str
) -> None:
    allowed = set(CALLERS[caller])
    if not owner and caller in NAMES:  # everybody who may report runs a job that is nobody's; only admins remove it
        allowed = (allowed | {"change"}) - (set() if caller == "admin" else {"remove"})
    for (method, path), route in ROUTES.items():
        number = begin(store, owner)
        before = store.audit.read().total
        there = path.replace("{job_id}", "asr").replace("{number}", str(number)) + route.query
        answer = client.request(method, there, json=_of(number, route.body), headers=callers[caller])
        said = (method, path, caller, owner, answer.status_code, answer.text[:200])
        added = store.audit.read().total - before
        if route.to not in allowed:
            assert answer.status_code == (401 if caller in ("nobody", "expired") else 403), said
            assert added == 0, said
            continue
        assert answer.status_code not in (401, 403) or path == "/login", said
        assert added == (route.audited is not None), said
        if route.audited is not None:
            (entry,) = store.audit.read(most=1).entries
            assert (entry.action, entry.who, entry.place) == (route.audited, NAMES[caller], "testclient"), said


def _of(number: int, body: Any) -> Any:
    """The body, about the trial of this number."""
    if not isinstance(body, dict):
        return body
    about = {"trial_number": number} if "trial_number" in body else {"trials": [number]} if "trials" in body else {}
    return {**body, **about}


def test_the_matrix_has_every_route(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(ROUTES) == {(method.upper(), path) for path, methods in paths.items() for method in methods}
