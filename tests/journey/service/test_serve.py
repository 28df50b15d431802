"""`zeus serve` and `zeus token` as commands: what refuses to start, what is served, and where secrets go."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.live import hidden
from support.paths import SOURCES
from support.served import hold_port
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.service.app import Settings
from zeus.service.server import ServerPlan, address, hosts_of

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ZEUS_")}
    return {**kept, "PYTHONPATH": paths, "XDG_DATA_HOME": str(tmp_path / "data")}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zeus.cli", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        stdin=subprocess.DEVNULL,
    )


# ---------------------------------------------------------------------- what does not start


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0, which other machines can reach, needs a token"),
        (["--require-token"], "zeus token create NAME"),
        (["--require-token", "--insecure"], "Give only one of them"),
        (["--certfile", __file__], "--certfile and --keyfile go together"),
        (["--proxy", "a.proxy"], "--proxy a.proxy: give an IP address or a network"),
        (["--store", "http://127.0.0.1:1"], "is a service, but a database is needed here"),
    ],
)
def test_what_would_not_be_safe_or_sound_is_refused_before_it_starts(
    environment: dict[str, str], arguments: list[str], why: str
) -> None:
    done = run(environment, "serve", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_said_to_be_before_anything_is_said_to_be_served(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        done = run(environment, "serve", "--port", str(door.getsockname()[1]))
    assert (done.returncode, "serving" in done.stderr) == (2, False)
    assert "cannot listen on 127.0.0.1:" in done.stderr


def test_tokens_that_would_travel_in_the_clear_are_warned_of(
    environment: dict[str, str], certificate: tuple[Path, Path]
) -> None:
    nowhere = ["--host", "192.0.2.1", "--insecure"]  # which no machine has, so that nobody is served
    assert "is plain HTTP, so tokens can be read on the network" in run(environment, "serve", *nowhere).stderr
    cert, key = map(str, certificate)
    assert "plain HTTP" not in run(environment, "serve", *nowhere, "--certfile", cert, "--keyfile", key).stderr


def test_a_worker_hears_all_that_the_command_was_told() -> None:
    settings = Settings(open=False, hosts=frozenset({"a", "b"}), per_second=3, log_json=True)
    plan = ServerPlan("sqlite:///x.db", "::1", 7070, 2, "c", "k", ("10.0.0.1",), 20, settings)
    assert ServerPlan.from_json(plan.to_json()) == plan
    assert address(plan) == "https://[::1]:7070"


def test_a_service_on_loopback_answers_to_the_names_of_loopback_and_those_it_was_given() -> None:
    assert hosts_of("127.0.0.1", ("Zeus.Local",)) >= {"localhost", "127.0.0.1", "zeus.local"}
    assert "evil.example" not in hosts_of("127.0.0.1", ())
    assert hosts_of("0.0.0.0", ()) == frozenset()
    assert hosts_of("0.0.0.0", ("zeus.local",)) == {"zeus.local"}


# ---------------------------------------------------------------------- tokens


def test_a_token_goes_into_a_file_for_its_owner_alone_where_nobody_looks_on(
    environment: dict[str, str], tmp_path: Path
) -> None:
    made = run(environment, "token", "create", "night shift", "--scope", "read", "--json")
    assert made.returncode == 0, made.stderr
    told = json.loads(made.stdout)
    file = Path(told["file"])
    secret = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.is_relative_to(tmp_path)
    assert secret.startswith(f"zeus_{told['id']}_")
    listed = run(environment, "token", "list")
    assert listed.stdout.splitlines()[1].split()[:5] == [told["id"], "night", "shift", "-", "read"]
    assert secret not in made.stdout + made.stderr + listed.stdout
    assert hidden(secret).encode() not in (tmp_path / "data" / "zeus" / "zeus.db").read_bytes()
    assert run(environment, "token", "create", "again", "--output", str(file)).returncode == 2
    assert "revoked" in run(environment, "token", "revoke", told["id"]).stdout
    assert json.loads(run(environment, "token", "list", "--json").stdout)[0]["revoked_at"] is not None
    assert run(environment, "token", "revoke", "nobody").returncode == 2


def test_a_token_that_cannot_be_stored_leaves_no_file(environment: dict[str, str], tmp_path: Path) -> None:
    assert run(environment, "token", "list").returncode == 0  # makes the store
    busy = sqlite3.connect(tmp_path / "data" / "zeus" / "zeus.db", isolation_level=None)
    busy.execute("BEGIN IMMEDIATE")
    hasty = {**environment, "ZEUS_TIME_LIMITS": "database_busy=0.1"}
    made = [run(hasty, "token", "create", "me", *where) for where in ((), ("--output", str(tmp_path / "mine")))]
    busy.execute("ROLLBACK")
    assert all(one.returncode and "did not answer" in one.stderr for one in made)
    assert not [path for path in tmp_path.rglob("*") if "token" in path.name or path.name == "mine"]
    assert json.loads(run(environment, "token", "list", "--json").stdout) == []


def test_a_token_is_shown_once_on_a_terminal_and_is_in_no_file(environment: dict[str, str], tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "zeus.cli", "token", "create", "me"],
        env=environment, stdin=theirs, stdout=theirs, stderr=theirs, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    os.close(theirs)
    said = os.read(ours, 10_000).decode()
    os.close(ours)
    assert done.returncode == 0
    secret = said.split()[0]
    assert secret.startswith("zeus_")
    assert not [path for path in (tmp_path / "data").rglob("*token*") if path.is_file()]


# ---------------------------------------------------------------------- served


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine to make a certificate with: apt-get install openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    return cert, key


@pytest.fixture
def served(
    environment: dict[str, str], certificate: tuple[Path, Path], tmp_path: Path
) -> Iterator[tuple[str, str, Any, subprocess.Popen[str]]]:
    """Two workers over TLS that want a token: (address, token, what to trust, the process)."""
    cert, key = certificate
    secret_file = tmp_path / "secret"
    assert run(environment, "token", "create", "me", "--scope", "admin", "--output", str(secret_file)).returncode == 0
    door = hold_port()
    port = door.getsockname()[1]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "zeus.cli", "serve", "--port", str(port), "--workers", "2", "--log", "json",
             "--require-token", "--certfile", str(cert), "--keyfile", str(key)],
            env=environment, stdout=log, stderr=log, text=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    trust = ssl.create_default_context(cafile=str(cert))
    there = f"https://127.0.0.1:{port}"
    try:
        eventually(lambda: answers(there, trust) or process.poll() is not None, (tmp_path / "log").read_text)
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield there, secret_file.read_text().strip(), trust, process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(PATIENCE_SECONDS)
        door.close()


def answers(there: str, trust: Any) -> bool:
    try:
        return httpx.get(f"{there}/readyz", verify=trust, timeout=PATIENCE_SECONDS).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.usefixtures("cold")
def test_two_workers_serve_one_store_over_tls_say_so_line_by_line_and_end_at_ctrl_c(
    served: tuple[str, str, Any, subprocess.Popen[str]], tmp_path: Path
) -> None:
    there, secret, trust, process = served
    stranger = {"verify": trust, "timeout": PATIENCE_SECONDS}
    assert httpx.get(f"{there}/api/v1/jobs", **stranger).status_code == 401
    assert httpx.get(f"{there}/healthz", headers={"Host": "evil.example"}, **stranger).status_code == 403
    with pytest.raises(httpx.TransportError):
        httpx.get(there.replace("https", "http") + "/healthz", timeout=PATIENCE_SECONDS)
    spec = {"job_id": "asr", "job_id_prefix": "asr", "batch_sizes": [8, 16], "default_batch_size": 16}
    trusted = {**stranger, "headers": {"Authorization": f"Bearer {secret}"}}
    assert httpx.post(f"{there}/api/v1/jobs", json={"spec": spec}, **trusted).status_code == 201
    numbers = [
        httpx.post(f"{there}/api/v1/jobs/asr/ask", json={"max_watts": 250.0}, **trusted).json()["ask"]["number"]
        for _ in range(8)
    ]  # each on a connection of its own, so that both workers have their share
    assert numbers == list(range(1, 9))
    counted = 'zeus_requests_total{method="POST",route="/api/v1/jobs/{job_id}/ask",status="201"} 8.0'
    eventually(lambda: counted in httpx.get(f"{there}/metrics", **trusted).text)  # a moment after it was answered
    assert 'zeus_trials{ending="open"} 8.0' in httpx.get(f"{there}/metrics", **trusted).text
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_SECONDS) == 0  # as docs/reference.md says of Ctrl-C
    said = (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(line["route"] == "/api/v1/jobs/{job_id}/ask" and line["status"] == 201 for line in lines) == 8
    assert hidden(secret) not in said
    assert "Traceback" not in said


@pytest.mark.usefixtures("cold")
def test_workers_end_with_the_process_that_began_them(served: tuple[str, str, Any, subprocess.Popen[str]]) -> None:
    there, _, trust, process = served
    process.kill()
    process.wait(PATIENCE_SECONDS)
    eventually(lambda: not answers(there, trust), lambda: "its workers still serve")
