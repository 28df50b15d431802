"""The viewers: `zeus monitor` and `python -m zeus.monitor`, as a user runs them, on virtual cards in real time."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO
from urllib.request import urlopen

import pytest

from support.nvml.fake import FakeNvml
from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.usefixtures("warm")

IDLE_WATTS = 32.69  # of the virtual V100

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path):
    """Start `python -m ...` on two virtual cards; what still runs at the end is killed."""
    running = []
    paths = [str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("ZEUS_", "CUDA_", "SLURM_"))},
        "ZEUS_GPU": "virtual:v100x2",
        "ZEUS_VIRTUAL_STATE": str(tmp_path / "cards"),
        "PYTHONPATH": os.pathsep.join(paths),
    }

    def begin(*arguments: str, stdout: int | IO[str] = subprocess.PIPE, **more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", *arguments]
        child = subprocess.Popen(
            command, stdout=stdout, stderr=subprocess.PIPE, text=True, env={**environment, **more}, encoding="utf-8"
        )
        running.append(child)
        return child

    yield begin
    for child in running:
        if child.poll() is None:
            child.kill()
        child.communicate()


def interrupt(child: subprocess.Popen[str]) -> tuple[str, str]:
    child.send_signal(signal.SIGINT)
    return child.communicate(timeout=PATIENCE_SECONDS)


def first_line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def test_monitor_prints_a_line_for_each_gpu_and_ends_quietly_with_a_summary(start: Start) -> None:
    child = start("zeus.cli", "monitor", "--interval", "0.05")
    line = first_line(child.stdout)
    out, err = interrupt(child)
    assert re.search(r"GPU 0 Tesla V100.*: 33 W of 250 W, 35 °C, .* J since the start, 33 W on average", line)
    ending = r"^zeus: \d+\.\d s, GPU .* J \(GPU 0: .* J, GPU 1: .* J\), 65 W on average$"
    assert re.search(ending, out.splitlines()[-1])
    assert (child.returncode, err) == (0, "")


def test_monitor_json_is_one_object_a_line_and_its_energy_adds_up(start: Start) -> None:
    child = start("zeus.cli", "monitor", "--interval", "0.05", "--json", "--gpu-indices", "1")
    lines = [first_line(child.stdout) for _ in range(3)]
    interrupt(child)
    views = [json.loads(line) for line in lines]
    assert child.returncode == 0
    assert [gpu["index"] for view in views for gpu in view["gpus"]] == [1, 1, 1]
    for view in views:
        assert view["joules"] == pytest.approx(IDLE_WATTS * view["seconds"], rel=0.02)
        assert view["gpus"][0]["average_watts"] == pytest.approx(IDLE_WATTS, rel=0.02)
    assert views[0]["joules"] < views[1]["joules"] < views[2]["joules"]


def test_monitor_once_prints_one_table(start: Start) -> None:
    out, err = start("zeus.cli", "monitor", "--once", "--interval", "0.05").communicate(timeout=PATIENCE_SECONDS)
    assert err == ""
    assert out.count("Tesla V100-PCIE-32GB") == 2
    assert "250 W (100-250)" in out


def test_monitor_once_json_is_one_object(start: Start) -> None:
    child = start("zeus.cli", "monitor", "--once", "--interval", "0.05", "--json")
    view = json.loads(child.communicate(timeout=PATIENCE_SECONDS)[0])
    assert child.returncode == 0
    assert list(view) == ["time", "seconds", "gpus", "watts", "joules", "average_watts"]
    assert view["watts"] == pytest.approx(2 * IDLE_WATTS)


def test_monitor_on_a_terminal_draws_a_table_and_clears_up(start: Start) -> None:
    ours, theirs = pty.openpty()
    child = start("zeus.cli", "monitor", "--interval", "0.05", stdout=theirs, TERM="xterm", COLUMNS="100")
    os.close(theirs)
    seen = b""
    while b"average" not in seen:
        seen += os.read(ours, 4096)
    child.send_signal(signal.SIGINT)
    try:
        while more := os.read(ours, 4096):
            seen += more
    except OSError:  # Linux: the other end of the terminal is closed
        pass
    os.close(ours)
    assert child.wait(PATIENCE_SECONDS) == 0
    assert seen.decode().rstrip().endswith("W on average")
    assert b"\x1b[?25h" in seen  # the cursor is back


def test_monitor_on_a_virtual_clock_has_no_average_where_no_time_passes(start: Start) -> None:
    child = start(
        "zeus.cli", "monitor", "--once", "--interval", "0.05", "--json", ZEUS_GPU="virtual:v100?clock=virtual"
    )
    view = json.loads(child.communicate(timeout=PATIENCE_SECONDS)[0])
    assert (view["seconds"], view["joules"], view["average_watts"]) == (0.0, 0.0, None)


def test_monitor_on_nvidia_cards_sets_nothing_and_survives_a_card_that_vanishes(
    start: Start, fake_nvml: FakeNvml
) -> None:
    steady, lost = fake_nvml.cards
    steady.power_watts = lost.power_watts = 300
    child = start("zeus.cli", "monitor", "--interval", "0.2", "--json", **fake_nvml.env(ZEUS_GPU="nvml"))
    first = json.loads(first_line(child.stdout))
    assert [gpu["watts"] for gpu in first["gpus"]] == pytest.approx([300, 300], rel=0.05)
    lost.lose()
    while (view := json.loads(first_line(child.stdout)))["gpus"][1]["joules"] is not None:
        pass
    interrupt(child)
    assert (view["gpus"][1]["watts"], view["joules"], view["watts"]) == (None, None, None)
    assert view["gpus"][0]["average_watts"] == pytest.approx(300, rel=0.1)
    assert child.returncode == 0
    assert fake_nvml.calls() == []


@pytest.mark.parametrize("arguments", [("--interval", "0"), ("--interval", "nan"), ("--gpu-indices", "a")])
def test_monitor_refuses_what_makes_no_sense(start: Start, arguments: tuple[str, str]) -> None:
    child = start("zeus.cli", "monitor", *arguments)
    out, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert (child.returncode, out) == (2, "")
    assert arguments[0] in err


def test_module_power_prints_until_interrupted(start: Start) -> None:
    child = start("zeus.monitor", "power", "--update-period", "0.05", "--gpu-indices", "0", "1")
    line = first_line(child.stdout)
    _, err = interrupt(child)
    assert re.search(r"Z  GPU 0 Tesla V100.*: 33 W of 250 W", line)
    assert (child.returncode, err) == (0, "")


def test_module_energy_measures_until_interrupted(start: Start) -> None:
    child = start("zeus.monitor", "energy", "--gpu-indices", "1")
    assert "Ctrl-C" in first_line(child.stderr)
    out, _ = interrupt(child)
    ended = re.fullmatch(r"zeus: (.+) s, GPU (.+) J, 33 W on average\n", out)
    assert ended, out
    seconds, joules = map(float, ended.groups())
    assert joules == pytest.approx(IDLE_WATTS * seconds, abs=IDLE_WATTS / 10)  # seconds are shown to a tenth
    assert child.returncode == 0


def test_module_says_what_is_wrong(start: Start) -> None:
    child = start("zeus.monitor", "power", "--gpu-indices", "7")
    _, err = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == 2
    assert "there is no GPU 7" in err


def test_a_nodes_power_can_be_scraped_from_this_machine_alone(start: Start) -> None:
    pytest.importorskip("prometheus_client", reason="pip install 'zeus-energy[service]'")
    child = start("zeus.cli", "monitor", "--prometheus", "0", "--interval", "0.05")
    address = re.search(r"http://(127\.0\.0\.1:\d+)/metrics", first_line(child.stderr))
    assert address is not None

    def told() -> str:
        with urlopen(f"http://{address[1]}/metrics", timeout=PATIENCE_SECONDS) as answer:
            return str(answer.read().decode())

    eventually(lambda: "zeus_gpu_joules_total{" in told())
    watts = re.findall(r'zeus_gpu_watts\{gpu="(\d)",name="Tesla V100[^"]*",uuid="[^"]+"\} ([\d.]+)', told())
    assert [(gpu, float(value)) for gpu, value in watts] == [("0", IDLE_WATTS), ("1", IDLE_WATTS)]
    assert "zeus_gpu_limit_watts{" in told()
    assert interrupt(child)[0] == ""
    assert child.returncode == 0


def test_a_port_that_is_taken_is_said_to_be(start: Start) -> None:
    pytest.importorskip("prometheus_client", reason="pip install 'zeus-energy[service]'")
    with socket.create_server(("127.0.0.1", 0)) as door:
        child = start("zeus.cli", "monitor", "--prometheus", str(door.getsockname()[1]))
        assert "cannot listen on" in child.communicate(timeout=PATIENCE_SECONDS)[1]
    assert child.returncode == 2
