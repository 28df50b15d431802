"""Every route with every kind of token, as OpenAPI and docs/service.md have them, while the database comes and goes.

Secrets are planted in the database's address and in every token. They are searched in each answer, in the log and in
the list of processes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.live import AT, PLACE, SPEC, bearer, hidden, token
from support.paths import ROOT, SOURCES
from support.postgres import PostgresServer
from support.served import hold_port
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.service import auth
from zeus.store import Store, open_store
from zeus.store.tokens import Scope

pytestmark = pytest.mark.usefixtures("warm")

DOCS = ROOT / "docs" / "service.md"
PASSWORD = "planted-password-of-the-database"
AWAY = "the store did not answer. Try again; the service's log has the reason."
FREE = {"/healthz", "/readyz", "/login", "/logout", "/api/v1/me", "/openapi.json", "/", "/static/app.js"}
WORDS = ("asr", "nobody", "a%2Fb", "%00", "..", "'; DROP TABLE zeus_jobs; --", "🚀", "x" * 300)
END = {"ending": "converged", "joules": 5.0, "seconds": 1.0, "epochs": 1}
BODIES: list[Any] = [
    {"spec": SPEC}, PLACE, END, {"trials": [1]}, {"batch_size": 8}, {}, {"token": "zeus_a_b"}, {"eta_knob": 0.4},
    {"so_far": END, "next_cost": 1.0}, {**SPEC, "max_power": 250.0},
    {"job_id": "asr", "batch_size": 16, "trial_number": 1, "time": 1, "energy": 1, "metric": 0.1, "current_epoch": 1},
    {"measurements": [{"power_limit": 250, "energy": 1.0, "time": 1.0}]}, {"spec": {"eta_knob": 1e308}}, [], None, "x",
]  # fmt: skip
QUERIES: list[dict[str, Any]] = [
    {},
    {"job_id": "asr"},
    {"batch_size": 16, "gpu_model": "V100", "gpu_count": 1},
    {"offset": -1, "limit": 10**30, "q": "%"},
]


@dataclass(frozen=True)
class Kind:
    """A way to come, and what it may do; None: nothing that needs a token."""

    name: str
    headers: dict[str, str]
    scope: Scope | None


def promised() -> dict[tuple[str, str], Scope | None]:
    """What the docs say that each route needs."""
    rows = re.findall(r"^\| `([A-Z]+) (\S+)` \| (\w*) ?\|", DOCS.read_text(), re.MULTILINE)
    scopes = {"": None, "owner": Scope.REPORT, **{scope.value: scope for scope in Scope}}
    return {(method, path): scopes[scope] for method, path, scope in rows}


class House:
    """A service with tokens over a Postgres of its own."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.database, self.log = server, folder / "log"
        url = f"{server.new_database()}&password={PASSWORD}"
        self.store: Store = open_store(url)
        self.secrets = {scope: token(self.store, scope) for scope in Scope}
        gone = token(self.store, Scope.ADMIN)
        self.store.tokens.revoke(gone.split("_")[1], AT)
        self.tokens = [*self.secrets.values(), gone]
        session = auth.begin_session(self.store.tokens, self.secrets[Scope.READ])
        over = auth.begin_session(self.store.tokens, self.secrets[Scope.ADMIN])
        auth.end_session(self.store.tokens, over)
        old = auth.begin_session(self.store.tokens, gone)
        admin = self.secrets[Scope.ADMIN]
        basic = base64.b64encode(f"any:{self.secrets[Scope.REPORT]}".encode()).decode()
        self.kinds = [
            Kind("nobody", {}, None),
            Kind("made up", bearer("zeus_0123456789ab_abcdefgh"), None),
            Kind("no token at all", {"Authorization": "Bearer ' OR 1=1"}, None),
            Kind("somebody's, cut short", bearer(admin[:-1]), None),
            Kind("without its scheme", {"Authorization": admin}, None),
            Kind("revoked", bearer(gone), None),
            Kind("session that ended", {"Cookie": f"{auth.COOKIE}={over}"}, None),
            Kind("session of a revoked token", {"Cookie": f"{auth.COOKIE}={old}"}, None),
            Kind("token as a cookie", {"Cookie": f"{auth.COOKIE}={admin}"}, None),
            *(Kind(scope.value, bearer(secret), scope) for scope, secret in self.secrets.items()),
            Kind("session", {"Cookie": f"{auth.COOKIE}={session}"}, Scope.READ),
            Kind("as a password", {"Authorization": f"Basic {basic}"}, Scope.REPORT),
        ]
        self.planted = [PASSWORD, session, over, old, *map(hidden, self.tokens)]
        self.planted += [hashlib.sha256(hidden(one).encode()).hexdigest() for one in self.tokens]
        self._door = hold_port()
        port = self._door.getsockname()[1]
        paths = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "zeus.cli", "serve", "--port", str(port), "--require-token", "--rate", "0"],
                env={**os.environ, "PYTHONPATH": paths, "ZEUS_STORE": url}, stdout=log, stderr=log,
            )  # fmt: skip
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS)
        eventually(self.is_ready, self.log.read_text)

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.client.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)
        self._door.close()
        self.store.close()

    def ask(self, method: str, path: str, kind: Kind, query: dict[str, Any], body: Any) -> httpx.Response:
        self.client.cookies.clear()
        content = None if method in ("GET", "DELETE") else json.dumps(body)
        typed = {} if content is None else {"Content-Type": "application/json"}
        return self.client.request(method, path, params=query, content=content, headers={**kind.headers, **typed})


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    try:
        server = PostgresServer.start(fsync=False)
    except LookupError as missing:
        pytest.skip(str(missing))
    with server:
        house = House(tmp_path, server)
        try:
            yield house
        finally:
            house.close()


def routes(house: House) -> dict[tuple[str, str], Scope | None]:
    """Those of the OpenAPI, with what the docs promise of each; and those that it leaves out."""
    described = house.client.get("/openapi.json").json()["paths"]
    told = {(method.upper(), path) for path, methods in described.items() for method in methods}
    asked = promised()
    assert told == set(asked), told ^ set(asked)
    return {**asked, **{("GET", path): None for path in FREE - {path for _, path in told}}}


def is_promised(status: int, path: str, needed: Scope | None, held: Scope | None) -> bool:
    """Whether this is what the docs promise to somebody who comes so."""
    order = list(Scope)
    if path == "/login":
        return status in (200, 401, 422, 429)
    if needed is None:
        return status < 500 and status not in (401, 403)
    if held is None:
        return status == 401
    if order.index(held) < order.index(needed):
        return status == 403
    is_owned = held is Scope.REPORT and needed is Scope.REPORT  # the job may be somebody else's
    return status < 500 and status != 401 and (status != 403 or is_owned)


def test_every_route_gives_every_kind_of_token_what_the_docs_promise(chaos: Any, house: House) -> None:
    needs = routes(house)
    grid = [(route, kind) for route in needs for kind in house.kinds if (route[1], kind.name) != ("/logout", "session")]
    chaos.dice.shuffle(grid)
    while chaos.going():
        for route, kind in grid:
            before = house.store.pulse() if kind.scope is None and route[0] != "GET" else None
            _knock(chaos, house, route, kind, needs[route])
            if before is not None:
                chaos.held(house.store.pulse() == before, f"{kind.name} changed something by {route}")
        _search(chaos, house)
        _take_the_database_away(chaos, house, needs)
        if "asr" not in house.store.pulse():
            house.client.post("/api/v1/jobs", json={"spec": SPEC}, headers=bearer(house.secrets[Scope.ADMIN]))


def _knock(chaos: Any, house: House, route: tuple[str, str], kind: Kind, needed: Scope | None) -> None:
    method, pattern = route
    dice = chaos.dice
    path = pattern.replace("{job_id}", "asr" if dice.random() < 0.7 else dice.choice(WORDS))
    path = path.replace("{number}", str(dice.choice((1, 2, 7))))
    if path != pattern and not re.fullmatch(r"[\w/%.]+", path):
        path = "/".join(httpx.URL(f"http://a/{part}").raw_path.decode()[1:] for part in path.split("/"))
    answer = house.ask(method, path, kind, dice.choice(QUERIES), dice.choice(BODIES))
    chaos.count("requests")
    known = "/../" not in f"{path}/"  # which is another route, or none
    said = f"{kind.name}: {method} {path} gave {answer.status_code}: {answer.text[:200]}"
    chaos.held(not known or is_promised(answer.status_code, pattern, needed, kind.scope), said)
    chaos.held(answer.status_code < 500, said)
    _hides(chaos, house, answer, said)


def _hides(chaos: Any, house: House, answer: httpx.Response, said: str) -> None:
    told = answer.text + str({name: value for name, value in answer.headers.items() if name != "set-cookie"})
    chaos.held(not [secret for secret in house.planted if secret in told], f"a secret was told to {said}")


def _search(chaos: Any, house: House) -> None:
    """For what was planted, in the log and in the list of processes."""
    said = house.log.read_text()
    chaos.held(not [secret for secret in house.planted if secret in said], "a secret is in the log")
    chaos.held("Traceback" not in said, f"the service failed: {said[-3000:]}")
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = line.read_bytes().decode(errors="replace")
        except OSError:  # it has ended
            continue
        chaos.held(not [secret for secret in house.planted if secret in command], "a secret is in the process list")


def _take_the_database_away(chaos: Any, house: House, needs: dict[tuple[str, str], Scope | None]) -> None:
    """Each route is asked while it is away: by somebody who may, and by nobody."""
    house.database.down()
    chaos.count("faults")
    folder = str(house.database.folder)
    kinds = [one for one in house.kinds if one.name in ("admin", "nobody")]
    for method, pattern in needs:
        for kind in kinds:
            path = pattern.replace("{job_id}", "asr").replace("{number}", "1")
            answer = house.ask(method, path, kind, chaos.dice.choice(QUERIES), chaos.dice.choice(BODIES))
            chaos.count("requests")
            said = f"{kind.name}: {method} {path} gave {answer.status_code} without a database: {answer.text[:200]}"
            chaos.held(answer.status_code in (200, 401, 422, 429, 503), said)
            if answer.status_code == 503:
                told = answer.json()
                away = AWAY in (told.get("message"), told.get("error", {}).get("message"))
                chaos.held(away or pattern == "/readyz", said)
            chaos.held(folder not in answer.text, said)
            _hides(chaos, house, answer, said)
    house.database.up()
    eventually(house.is_ready, house.log.read_text)
