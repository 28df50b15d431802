"""The units of deploy/systemd: systemd accepts them, and each runs with the user, rights and folders that it names."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT, SOURCES
from support.systemd_unit import INSTALLED, SystemdUnit, analyze, beside, needs_namespaces, needs_systemd_analyze
from support.waiting import PATIENCE_SECONDS, eventually

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
CONFIG = 'gpu = "virtual:v100"\n[keeper]\ngroup = "daemon"\naudit = "/var/log/zeus/keeper.log"\n'
HOLD = """
from zeus.device.find import machine
from zeus.device.keeper import lend
lend(machine()).set_limit(150)
"""
FETCH = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=60).read().decode())"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that services can read, beside the /tmp that they do not see."""
    path = Path(tempfile.mkdtemp(prefix="zeus-unit-", dir="/var/tmp"))
    path.chmod(0o755)
    (path / "config.toml").write_text(CONFIG)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def started(folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Services that end with the test."""
    services: list[subprocess.Popen[str]] = []
    yield services
    for service in services:
        service.kill()
        service.communicate()


def start(name: str, folder: Path, started: list[subprocess.Popen[str]], **variables: str) -> subprocess.Popen[str]:
    unit = SystemdUnit.read((ROOT / "deploy" / "systemd" / f"{name}.service").read_text())
    service = unit.start(**variables, ZEUS_CONFIG=str(folder / "config.toml"), ZEUS_VIRTUAL_STATE="/tmp/cards")
    started.append(service)
    return service


def stop(service: subprocess.Popen[str]) -> str:
    """Stop a service as systemd does. Returns what it logged."""
    service.send_signal(signal.SIGTERM)
    log = service.communicate(timeout=PATIENCE_SECONDS)[1]
    assert service.returncode in (0, -signal.SIGTERM), log  # both are a clean end for systemd
    return log


@needs_systemd_analyze
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_accepts_the_unit(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / path.name
    copy.write_text(path.read_text().replace(INSTALLED, f"{Path(sys.executable).parent}/"))
    found = analyze("verify", "--man=no", copy)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
    copy.write_text(copy.read_text() + "\n[Service]\nProtectSystems=yes\n")
    assert "ProtectSystems" in analyze("verify", "--man=no", copy).stderr


def test_the_keepers_unit_is_the_one_that_is_printed() -> None:
    unit = ROOT / "deploy" / "systemd" / "zeus-keeper.service"
    assert unit.resolve() == SOURCES / "zeus" / "device" / "keeper" / "zeus-keeper.service"


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd is not installed")
def test_the_group_and_the_user_of_the_units_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    made = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", str(ROOT / "deploy" / "systemd" / "sysusers.conf")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "zeus-serve:" in (tmp_path / "etc" / "passwd").read_text()
    groups = (tmp_path / "etc" / "group").read_text().splitlines()
    assert {"zeus", "zeus-serve"} <= {line.split(":")[0] for line in groups}


@needs_namespaces
def test_the_keeper_lends_and_writes_its_audit_with_the_rights_of_its_unit(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    keeper = start("zeus-keeper", folder, started)
    own = {"ZEUS_CONFIG": str(folder / "config.toml"), "ZEUS_VIRTUAL_STATE": "/tmp/cards"}
    own["ZEUS_KEEPER"] = "/run/zeus/keeper.sock"  # virtual cards do not look for it by themselves

    def reads() -> str:
        report = beside(keeper, sys.executable, "-m", "zeus.cli", "env", "--json", **own)
        return str(json.loads(report)["keeper"]["use"]) if report else ""

    eventually(lambda: keeper.poll() is not None or reads() == "system")
    assert keeper.poll() is None, keeper.communicate()
    beside(keeper, sys.executable, "-c", HOLD, **own)
    audit = "/var/log/zeus/keeper.log"
    eventually(lambda: "restore allowed" in beside(keeper, "cat", audit))
    assert "set allowed" in beside(keeper, "cat", audit)
    assert beside(keeper, "stat", "-c", "%a %G", "/run/zeus/keeper.sock", audit).split() == [
        "660", "daemon", "600", "root",
    ]  # fmt: skip
    assert "audit lines cannot be written" not in stop(keeper)


@needs_namespaces
def test_the_monitor_serves_metrics_as_a_user_without_rights(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    pytest.importorskip("prometheus_client")
    monitor = start("zeus-monitor", folder, started, PORT="9401")
    url = "http://127.0.0.1:9401/metrics"

    def metrics() -> str:
        return beside(monitor, sys.executable, "-c", FETCH, url)

    eventually(lambda: monitor.poll() is not None or "zeus_gpu_limit_watts{" in metrics())
    assert monitor.poll() is None, monitor.communicate()
    stop(monitor)


@needs_namespaces
def test_the_service_serves_from_its_own_folder_as_a_user_without_rights(
    folder: Path, started: list[subprocess.Popen[str]]
) -> None:
    pytest.importorskip("uvicorn")
    service = start("zeus-serve", folder, started, OPTIONS="--log json --workers 1")
    url = "http://127.0.0.1:7070/readyz"
    eventually(lambda: service.poll() is not None or "ok" in beside(service, sys.executable, "-c", FETCH, url).lower())
    assert service.poll() is None, service.communicate()
    assert beside(service, "stat", "-c", "%a", "/var/lib/zeus/zeus.db").strip() in {"600", "640"}
    stop(service)
