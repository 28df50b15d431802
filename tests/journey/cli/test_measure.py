"""`zeus measure`, as a user types it: exit codes, signals, and reports that go where they should or say why not."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("warm")

TRAP = "import signal, sys, time\nhits = 0\ndef hit(*_):\n    global hits\n    hits += 1\n"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ZEUS_", "CUDA_", "SLURM_"))}
    cards = {"ZEUS_GPU": "virtual:v100", "ZEUS_VIRTUAL_STATE": str(tmp_path / "cards")}
    return {**clean, **cards, "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])}


def measure(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zeus.cli", "measure", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


def start(env: dict[str, str], *arguments: str, **more: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "zeus.cli", "measure", *arguments]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, **more)  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        (["false"], 1),
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -TERM $$"], 143),
        (["no-such-command-anywhere"], 127),
        (["/"], 126),
    ],
)
def test_the_exit_code_is_the_commands(env: dict[str, str], command: list[str], status: int) -> None:
    done = measure(env, "--json", "--", *command)
    assert done.returncode == status
    assert json.loads(done.stdout)["exit_code"] == status


def test_a_script_that_says_nothing_of_what_runs_it_is_not_run(env: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("echo hello\n")
    script.chmod(0o755)
    done = measure(env, "--", str(script))
    assert done.returncode == 126
    assert "Traceback" not in done.stderr


def test_bad_usage_is_2_and_runs_nothing(env: dict[str, str], tmp_path: Path) -> None:
    touch = ["touch", str(tmp_path / "ran")]
    for wrong in (
        [],
        ["--gpu-indices", "x", "--", *touch],
        ["--gpu-indices", "9", "--", *touch],
        ["--output", str(tmp_path / "no" / "such"), "--", *touch],
        ["--output", str(tmp_path), "--", *touch],
        ["--output", "/proc/zeus.json", "--", *touch],
    ):
        done = measure(env, *wrong)
        assert (done.returncode, done.stdout) == (2, ""), wrong
    assert not (tmp_path / "ran").exists()


def test_a_report_that_cannot_be_written_in_the_end_is_told_all_the_same(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    done = measure(env, "--output", str(tmp_path / "folder" / "r.json"), "--", "rm", "-r", str(tmp_path / "folder"))
    assert done.returncode == 0
    assert "could not be written" in done.stderr
    assert " J" in done.stderr


def test_json_stands_alone_on_stdout_whatever_the_command_prints(env: dict[str, str]) -> None:
    done = measure(env, "--json", "--", sys.executable, "-c", "print('x' * 1_000_000)")
    assert json.loads(done.stdout)["exit_code"] == 0
    assert len(done.stderr) > 1_000_000


def test_quiet_says_nothing(env: dict[str, str]) -> None:
    done = measure({**env, "ZEUS_QUIET": "1"}, "--", "echo", "hello")
    assert (done.stdout, done.stderr) == ("hello\n", "")


def test_without_a_gpu_time_is_measured_and_energy_is_null(env: dict[str, str]) -> None:
    done = measure({**env, "CUDA_VISIBLE_DEVICES": "-1"}, "--json", "--", "true")
    report = json.loads(done.stdout)
    assert (done.returncode, report["joules"], report["gpus"]) == (0, None, [])
    assert report["seconds"] > 0


def test_a_reader_that_has_left_is_no_crash(env: dict[str, str]) -> None:
    for command in (["env", "--json"], ["measure", "--json", "--", "true"], ["monitor", "--interval", "0.01"]):
        ours, theirs = os.pipe()
        os.close(ours)
        done = subprocess.run(
            [sys.executable, "-m", "zeus.cli", *command],
            env=env,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        os.close(theirs)
        assert done.returncode == 1
        assert done.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_reaches_the_command_which_may_ignore_it(env: dict[str, str], number: signal.Signals) -> None:
    code = f"signal.signal({int(number)}, hit)\nprint('ready', flush=True)\n"
    code += "while not hits: time.sleep(0.01)\nsys.exit(40 + hits)"
    child = start(env, "--", sys.executable, "-c", TRAP + code, start_new_session=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(number)
    child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == 41


@pytest.mark.usefixtures("cold")
def test_ctrl_c_in_a_terminal_reaches_the_command_once_even_with_input_from_a_file(env: dict[str, str]) -> None:
    """A second one would interrupt a training that is saving what it has."""
    code = (
        "signal.signal(2, hit)\nprint('ready', flush=True)\nwhile not hits: time.sleep(0.01)\n"
        "end = time.monotonic() + 1\nwhile time.monotonic() < end: time.sleep(0.05)\n"
        "sys.exit(40 + hits)"
    )
    command = [sys.executable, "-m", "zeus.cli", "measure", "--", sys.executable, "-c", TRAP + code]
    child, terminal = pty.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execve(sys.executable, command, env)
    seen = b""
    while b"ready" not in seen:
        seen += os.read(terminal, 1024)
    os.write(terminal, b"\x03")
    try:
        while os.read(terminal, 1024):
            pass
    except OSError:  # Linux: the other end is closed
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 41
    os.close(terminal)


# ------------------------------------------------------------------------------------------------ money and carbon

HOURS = ["2023-11-14T22:00:00Z", "2023-11-14T23:00:00Z", "2023-11-15T00:00:00Z"]  # virtual clocks begin in the first
LEFT = 2800  # seconds of the first hour that are left
WORK = "from zeus.device.find import find; find()[0].machine.run([0], seconds={seconds}, watts=180.0)"


def series(path: Path, values: list[str]) -> str:
    path.write_text("hour,value\n" + "".join(f"{hour},{value}\n" for hour, value in zip(HOURS, values, strict=True)))
    return str(path)


def test_an_hourly_series_prices_each_hour_by_hand(env: dict[str, str], tmp_path: Path) -> None:
    env |= {
        "ZEUS_GPU": "virtual:v100?clock=virtual",
        "ZEUS_PRICE_PER_KWH": series(tmp_path / "price.csv", ["0.2", "0.5", "0.1"]),
        "ZEUS_CURRENCY": "EUR",
        "ZEUS_GCO2E_PER_KWH": series(tmp_path / "carbon.csv", ["300", "400", "500"]),
    }
    work = [sys.executable, "-c", WORK.format(seconds=LEFT + 3600 + 900)]
    report = json.loads(measure(env, "--json", "--", *work).stdout)
    kwh = [180 * span / 3.6e6 for span in (LEFT, 3600, 900)]
    assert [row["hour"] for row in report["hours"]] == HOURS
    assert [row["joules"] / 3.6e6 for row in report["hours"]] == pytest.approx(kwh)
    assert report["kwh"] == pytest.approx(sum(kwh))
    assert report["money"] == pytest.approx(kwh[0] * 0.2 + kwh[1] * 0.5 + kwh[2] * 0.1)
    assert report["gco2e"] == pytest.approx(kwh[0] * 300 + kwh[1] * 400 + kwh[2] * 500)
    assert (report["currency"], report["hours_by"]) == ("EUR", "time")
    again = measure({**env, "ZEUS_VIRTUAL_STATE": str(tmp_path / "others")}, "--", *work)
    assert "zeus:   GPU 0.365 kWh, 0.12 EUR, 136 gCO2e (spread evenly over its hours)" in again.stderr


def test_an_hour_without_a_price_is_unknown_and_the_report_covers_a_part(env: dict[str, str], tmp_path: Path) -> None:
    env |= {
        "ZEUS_GPU": "virtual:v100?clock=virtual",
        "ZEUS_PRICE_PER_KWH": series(tmp_path / "price.csv", ["0.2", "", "0.1"]),
        "ZEUS_CURRENCY": "EUR",
    }
    seconds = LEFT + 700
    output = tmp_path / "report.json"
    done = measure(env, "--output", str(output), "--", sys.executable, "-c", WORK.format(seconds=seconds))
    report = json.loads(output.read_text())
    assert (report["money"], report["gco2e"], report["gco2e_covers"]) == (None, None, None)
    assert report["known_money"] == pytest.approx(180 * LEFT / 3.6e6 * 0.2)
    assert report["money_covers"] == pytest.approx(LEFT / seconds)
    assert "0.03 EUR for 80 % of it (the price of the rest is unknown)" in done.stderr


def test_a_bad_cell_is_refused_before_the_command_runs(env: dict[str, str], tmp_path: Path) -> None:
    env["ZEUS_PRICE_PER_KWH"] = series(tmp_path / "price.csv", ["0.2", "cheap", "0.1"])
    done = measure(env, "--", "touch", str(tmp_path / "ran"))
    assert done.returncode == 2
    assert "price.csv, line 3: 'cheap' is no value" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_without_prices_the_report_has_kilowatt_hours_alone(env: dict[str, str]) -> None:
    report = json.loads(measure(env, "--json", "--", "true").stdout)
    assert report["kwh"] == pytest.approx(report["joules"] / 3.6e6)
    assert [report[name] for name in ("money", "money_covers", "gco2e", "gco2e_covers")] == [None] * 4
    assert report["hours"] == []
