"""`zeus doctor` on broken machines: it names the fault and the command, and the command mends the fault."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.keeper_place import Place, inhabited, is_dead, keepers_of, nvidia, says, virtual
from support.nvml.fake import FakeNvml
from support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("warm")

STRANGER = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]  # root's files, but not root's number


def _is_possible(command: list[str]) -> bool:
    return bool(shutil.which(command[0])) and not subprocess.run([*command, "true"], check=False).returncode


needs_stranger = pytest.mark.skipif(
    os.geteuid() != 0 or not _is_possible(STRANGER), reason="only root with unshare can become a user without rights"
)


@pytest.fixture
def node(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A machine with two healthy NVIDIA cards."""
    yield from inhabited(nvidia, request, monkeypatch)


@pytest.fixture
def virtual_node(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A machine with two healthy virtual cards."""
    yield from inhabited(virtual, request, monkeypatch)


def examined(place: Place, *options: str, before: list[str] | None = None, **env: str) -> dict[str, dict[str, Any]]:
    """The checks by name. The exit code agrees with them."""
    done = subprocess.run(
        [*(before or []), sys.executable, "-m", "zeus.cli", "doctor", "--json", *options],
        env={**place.env, **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.stderr == "" or "zeus:" not in done.stderr, done.stderr
    report = json.loads(done.stdout)
    broken = [check for check in report["checks"] if check["state"] == "broken"]
    assert done.returncode == (1 if broken else 0)
    assert report["ok"] is (not broken)
    assert all(check["command"] for check in broken)
    return {check["name"]: check for check in reversed(report["checks"])}


def broken(checks: dict[str, dict[str, Any]]) -> list[str]:
    return sorted(name for name, check in checks.items() if check["state"] == "broken")


def run_command(command: str, place: Place) -> subprocess.Popen[str]:
    """What the page says to type, with this interpreter's `zeus`."""
    program, *arguments = shlex.split(command.removeprefix("sudo "))
    assert program == "zeus"
    return place.start("-m", "zeus.cli", *arguments, stderr=subprocess.DEVNULL)


def test_a_healthy_node_is_well(node: Place) -> None:
    node.env["ZEUS_KEEPER"] = "private"
    checks = examined(node)
    assert broken(checks) == []
    assert checks["driver"]["message"].startswith("2 GPUs found")
    assert checks["limits"]["message"] == "Power limits can be set."
    assert checks["slowdowns"]["state"] == "ok"


def test_the_page_for_people_has_a_line_for_each_check_and_the_command_below_it(virtual_node: Place) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zeus.cli", "doctor"],
        env={**virtual_node.env, "ZEUS_STORE": f"http://127.0.0.1:{free_port()}"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    assert "ok      driver         2 GPUs found" in done.stdout
    assert "BROKEN  store          http://127.0.0.1:" in done.stdout
    assert "$ zeus serve --port" in done.stdout
    assert done.stdout.endswith("1 check failed.\n")


def test_no_driver(node: Place, fake_nvml: FakeNvml) -> None:
    env = {name: value for name, value in node.env.items() if name != "FAKE_NVML_STATE"}
    node.env = {**env, "ZEUS_GPU": "auto"}  # the library is there, but the kernel has no driver loaded
    checks = examined(node)
    assert broken(checks) == ["driver"]
    assert "The NVIDIA driver cannot be opened: Driver Not Loaded" in checks["driver"]["message"]
    answers = ("nvidia-driver", "docker run --gpus all", "ZEUS_GPU=virtual:v100")  # what is right here
    assert any(answer in checks["driver"]["command"] for answer in answers)
    assert checks["energy"]["state"] == checks["limits"]["state"] == "not applicable"
    assert broken(examined(node, ZEUS_GPU="nvml")) == ["driver"]
    hidden = examined(node, FAKE_NVML_STATE=str(fake_nvml.path), CUDA_VISIBLE_DEVICES="")["driver"]
    assert hidden["command"] == "unset CUDA_VISIBLE_DEVICES"


@needs_stranger
def test_no_permission(node: Place) -> None:
    node.env.pop("ZEUS_KEEPER", None)
    checks = examined(node, before=STRANGER, ZEUS_STORE=f"sqlite:///{node.folder}/zeus.db")
    assert broken(checks) == ["limits"]
    assert "user 1000 may not set them and no keeper runs on this machine" in checks["limits"]["message"]
    command = checks["limits"]["command"]
    assert command.startswith("sudo") or "docker" in command
    assert "keeper" in command or "docker" in command
    node.serve()  # as the command would, at a socket of the test
    assert broken(examined(node, before=STRANGER, ZEUS_STORE=f"sqlite:///{node.folder}/zeus.db")) == []


def test_keeper_dead(virtual_node: Place) -> None:
    keeper = virtual_node.serve()
    assert "answers" in examined(virtual_node)["keeper"]["message"]
    keeper.kill()
    keeper.wait()
    checks = examined(virtual_node)
    assert broken(checks) == ["keeper", "limits"]
    socket_path = virtual_node.env["ZEUS_KEEPER"]
    assert checks["keeper"]["message"].startswith(f"No keeper answers at {socket_path}")
    if "systemctl" in checks["keeper"]["command"]:
        pytest.skip("systemd runs the keeper of this machine")
    assert checks["keeper"]["command"].removeprefix("sudo ") == f"zeus keeper --socket {socket_path}"
    run_command(checks["keeper"]["command"], virtual_node)
    eventually(lambda: broken(examined(virtual_node)) == [])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def test_store_unreachable(virtual_node: Place) -> None:
    port = free_port()
    virtual_node.env |= {"ZEUS_STORE": f"http://127.0.0.1:{port}"}
    checks = examined(virtual_node)
    assert broken(checks) == ["store"]
    assert f"http://127.0.0.1:{port} does not answer: " in checks["store"]["message"]
    assert checks["store"]["command"] == f"zeus serve --port {port}"
    virtual_node.env["ZEUS_STORE"] = f"sqlite:///{virtual_node.folder}/zeus.db"  # what the service serves
    run_command(checks["store"]["command"], virtual_node)
    eventually(lambda: broken(examined(virtual_node, ZEUS_STORE=f"http://127.0.0.1:{port}")) == [])


def test_a_database_that_refuses(virtual_node: Place) -> None:
    pytest.importorskip("psycopg")
    checks = examined(virtual_node, ZEUS_STORE=f"postgresql://me:secret@127.0.0.1:{free_port()}/zeus")
    assert broken(checks) == ["store"]
    assert "onnection refused" in checks["store"]["message"]
    assert "secret" not in json.dumps(checks)
    assert checks["store"]["command"].endswith("service postgresql restart")


def test_a_card_that_a_dead_keeper_left_throttled(node: Place) -> None:
    node.env["ZEUS_KEEPER"] = "private"
    trainer = node.train("hold")
    says(trainer, "lowered")
    assert broken(examined(node)) == []  # a training holds the cards
    os.kill(trainer.pid, signal.SIGSTOP)  # so that it cannot start another keeper
    keepers = keepers_of(node)
    for pid in keepers:
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: is_dead(pid))  # type: ignore[misc]
    trainer.kill()
    checks = examined(node)
    assert broken(checks) == ["left limits"]
    assert f"a keeper died and left {node.low:g} W, {node.low:g} W in force" in checks["left limits"]["message"]
    assert checks["left limits"]["command"] == "zeus restore"
    assert run_command(checks["left limits"]["command"], node).wait(PATIENCE_SECONDS) == 0
    assert node.is_back()
    assert broken(examined(node)) == []


def test_a_card_that_somebody_throttled_unless_the_site_says_so(node: Place, fake_nvml: FakeNvml) -> None:
    node.env["ZEUS_KEEPER"] = "private"
    card = fake_nvml.cards[1]
    card.limit_watts = 350
    checks = examined(node)
    assert broken(checks) == ["left limits"]
    assert "GPU 1" in checks["left limits"]["message"]
    assert "its limit is 350 W, its default 700 W" in checks["left limits"]["message"]
    assert checks["left limits"]["command"] == f"nvidia-smi -i {card.uuid} -pl 700"
    intended = node.folder / "config.toml"
    intended.write_text("[keeper]\nceiling = '50 %'\n")
    assert broken(examined(node, ZEUS_CONFIG=str(intended))) == []
    card.limit_watts = 700


def test_a_card_that_the_driver_slows_down(node: Place, fake_nvml: FakeNvml) -> None:
    node.env["ZEUS_KEEPER"] = "private"
    fake_nvml.cards[0].slowdowns = 0x20 | 0x80 | 0x04
    checks = examined(node)
    assert broken(checks) == ["slowdowns"]
    assert "GPU 0 (NVIDIA H200 (not really)): too hot, power brake." in checks["slowdowns"]["message"]


def test_a_wrong_configuration_file(virtual_node: Place) -> None:
    path = virtual_node.folder / "config.toml"
    path.write_text("mode = 'fast'\n")
    checks = examined(virtual_node, ZEUS_CONFIG=str(path))
    assert broken(checks) == ["configuration"]
    assert f"{path}, line 1: mode = 'fast': give" in checks["configuration"]["message"]
    path.write_text("mode = 'off'\n")
    path.chmod(0o666)
    command = examined(virtual_node, ZEUS_CONFIG=str(path))["configuration"]["command"]
    assert command.removeprefix("sudo ") == f"chmod go-w {path}"
    subprocess.run(shlex.split(command.removeprefix("sudo ")), check=True)
    assert broken(examined(virtual_node, ZEUS_CONFIG=str(path))) == []


def test_a_token_that_every_user_can_read(virtual_node: Place) -> None:
    path = virtual_node.folder / "token"
    path.write_text("zeus_hidden")
    path.chmod(0o644)
    checks = examined(virtual_node, ZEUS_TOKEN_FILE=str(path))
    assert broken(checks) == ["configuration"]
    assert "zeus_hidden" not in json.dumps(checks)
    command = checks["configuration"]["command"].removeprefix("sudo ")
    subprocess.run(shlex.split(command), check=True)
    assert broken(examined(virtual_node, ZEUS_TOKEN_FILE=str(path))) == []


def test_a_policy_for_a_group_that_does_not_exist(virtual_node: Place) -> None:
    path = virtual_node.folder / "config.toml"
    path.write_text("[keeper]\ngroup = 'no-such-group'\n")
    checks = examined(virtual_node, ZEUS_CONFIG=str(path))
    assert broken(checks) == ["configuration"]
    assert checks["configuration"]["command"].removeprefix("sudo ") == "groupadd --system no-such-group"


def test_it_ends_even_if_the_driver_and_the_store_hang(node: Place, fake_nvml: FakeNvml) -> None:
    fake_nvml.cards[0].fail("all", "hang")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        checks = examined(node, "--timeout", "1", ZEUS_STORE=f"http://127.0.0.1:{silent.getsockname()[1]}")
    fake_nvml.cards[0].heal()
    assert broken(checks) == ["driver", "store"]
    assert checks["driver"]["message"] == "The GPU driver or the keeper did not answer within 1 s."
    assert checks["store"]["message"] == "The store did not answer within 1 s."


def test_it_changes_nothing(node: Place, fake_nvml: FakeNvml) -> None:
    node.env["ZEUS_KEEPER"] = "private"
    store = node.folder / "zeus.db"
    examined(node, ZEUS_STORE=f"sqlite:///{store}")
    assert fake_nvml.calls() == []
    assert not store.exists()
    with contextlib.suppress(FileNotFoundError):
        assert list((node.folder / "notes").glob("*.json")) == []
