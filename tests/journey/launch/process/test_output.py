"""What a script writes, however much and however strange: it is read, its log stays small, and the training goes on."""

from __future__ import annotations

import json
import os
import signal
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from support.disks import fill, free, size, tiny_disk
from support.launch_place import Place, tries
from support.waiting import PATIENCE_SECONDS, eventually, limits
from zeus.launch.job_file.values import MetricsSource
from zeus.launch.process import output
from zeus.launch.process.output import LogFile, Output
from zeus.launch.script_events import Line
from zeus.launch.script_lines import LONGEST, ScriptLines, reader_of

# What a training does that speaks for itself, without the weight of torch; before that it prints 1 MB.
SPEAKS = """
import os
from zeus.job import Ending, Outcome
from zeus.client.catalog import find_job
for n in range(1000): print("x" * 999, flush=True)
if os.path.exists("breaks"): raise SystemExit("CUDA out of memory")
outcome = Outcome(ending=Ending.CONVERGED, joules=500.0, seconds=2.0, epochs=2, metric=0.95)
find_job(os.environ["ZEUS_JOB_ID"]).tell(int(os.environ["ZEUS_TRIAL"]), outcome)
"""


SLOW = "print('x' * 9000, flush=True)"  # a line on which a repeat inside a repeat takes for ever

pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    here = Place(tmp_path)
    here.script()
    here.job()
    return here


# ---------------------------------------------------------------------------------------------------- disks


@pytest.mark.parametrize("way", ["speaks", "is watched"])
@pytest.mark.parametrize("left", [0, 200_000], ids=["full", "almost full"])
def test_a_full_disk_under_the_logs_costs_the_log_and_no_training(place: Place, way: str, left: int) -> None:
    if way == "speaks":
        place.job(metrics="")
        (place.folder / "train.py").write_text(SPEAKS)
    else:
        place.script(before="for n in range(1000): print('x' * 999, flush=True)")
    with tiny_disk(place.folder / "disk", 1024) as disk:
        fill(disk, leave=left)
        done = place.run("--json", ZEUS_LOG_DIR=str(disk))
        assert done.returncode == 0, done.stderr
        assert [one["ending"] for one in tries(json.loads(done.stdout))] == ["converged"]
        assert "will not hold all output" in done.stderr
        assert free(disk) >= 0.05 * size(disk) - 4096 or not left


def test_why_a_size_crashed_is_known_where_its_log_could_not_be_written(place: Place) -> None:
    place.job(metrics="", batch_sizes=[16])
    (place.folder / "train.py").write_text(SPEAKS)
    (place.folder / "breaks").touch()
    with tiny_disk(place.folder / "disk", 256) as disk:
        fill(disk)
        done = place.run(ZEUS_LOG_DIR=str(disk))
    assert "| CUDA out of memory" in done.stderr
    assert "Fix the training script or offer smaller sizes" in done.stderr


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LONGEST", 4000)
    monkeypatch.setattr(output, "KEPT", 1000)


def left_out(text: str) -> int:
    _, _, rest = text.partition("[zeus: ")
    return int(rest.partition(" bytes")[0].replace(",", ""))


def test_a_long_log_keeps_its_beginning_and_its_end_and_says_what_lies_between(tmp_path: Path, small: None) -> None:
    kept, lines = LogFile(tmp_path / "log"), [b"line %05d\n" % n for n in range(5000)]
    for line in lines:
        kept.write(line)
        assert (tmp_path / "log").stat().st_size <= 4000 + len(line)
    kept.close()
    text = (tmp_path / "log").read_text()
    assert text.startswith("line 00000\n") and text.endswith("line 04999\n")
    assert text.count("[zeus: ") == 1
    note = f"\n[zeus: {left_out(text):,} bytes of output are left out here]\n"
    assert len(text) - len(note) + left_out(text) == sum(map(len, lines))
    assert kept.end == b"".join(lines)[-output.END :]


def test_what_a_disk_had_no_room_for_is_said_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "SPACE_SECONDS", 0.0)
    with tiny_disk(tmp_path / "disk", 256) as disk:
        kept = LogFile(disk / "log")
        kept.write(b"before\n")
        ballast = fill(disk)
        kept.write(b"lost\n" * 2000)
        assert kept.end.endswith(b"lost\n")
        ballast.unlink()
        kept.write(b"after\n")
        kept.close()
        assert (disk / "log").read_text() == "before\n\n[zeus: 10,000 bytes of output are left out here]\nafter\n"


def test_a_folder_that_is_gone_costs_the_log_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = LogFile(tmp_path / "gone" / "log")
    for _ in range(3):
        kept.write(b"said\n")
    kept.close()
    assert kept.end == b"said\n" * 3
    assert caplog.text.count("Training continues") == 1


# ---------------------------------------------------------------------------------------------------- lines


def test_an_expression_that_takes_for_ever_on_a_line_costs_that_line_alone(place: Place) -> None:
    place.script(before=SLOW)
    place.job(metrics=r"regex = '(?:x+x+)+=\S|acc=(\S+)'")
    done = place.run("--json", ZEUS_TIME_LIMITS=limits(line=0.1))
    assert done.returncode == 0, done.stderr
    assert "is ignored: [metrics] takes too long to match it" in done.stderr


def test_an_expression_that_takes_for_ever_does_not_keep_from_interrupting(place: Place) -> None:
    place.script(before=f"{SLOW}; open('slow', 'w').close()", epochs=1)
    place.job(metrics=r"regex = '((?:x+x+)+)y'")
    process = place.start(STEPS="100000", ZEUS_TIME_LIMITS=limits(line=3600))
    eventually((place.folder / "slow").exists)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130


def test_an_expression_that_takes_too_long_for_every_line_ends_the_run_with_what_to_do(place: Place) -> None:
    place.script(before=f"while True: {SLOW}")
    place.job(metrics=r"regex = '((?:x+x+)+)y'")
    done = place.run(ZEUS_TIME_LIMITS=limits(line=0.1))
    assert done.returncode == 1
    assert "takes too long on one line after another" in done.stderr
    assert "Avoid a repeat inside a repeat" in done.stderr


def test_lines_that_take_too_long_after_the_target_was_reached_do_not_cost_the_trial(place: Place) -> None:
    place.script(after=f"for _ in range(20): {SLOW}\ntime.sleep(3)\nopen('model', 'w').close()", epochs=4)
    place.job(batch_sizes=[16], metrics=r"regex = '(?:x+x+)+=\S|acc=(\S+)'")
    report = place.report(ZEUS_TIME_LIMITS=limits(line=0.05))
    assert [one["ending"] for one in tries(report)] == ["converged"]
    assert (place.folder / "model").exists()


def test_lines_that_come_after_the_end_are_counted_and_belong_to_no_trial() -> None:
    lines = ScriptLines(reader_of(MetricsSource(regex=r"acc=(\S+)")), lambda: None)
    lines.receive(b"acc=0.5\n")
    lines.close()
    for chunk in (b"acc=0.6\nacc=0.7", b""):
        lines.receive(chunk)
    assert [lines.next(0), lines.next(0)] == [(Line("1", 0.5), None), None]
    assert lines.lines == 3


BOMBS = {
    "a line without end": "'x' * 20_000_000",
    "deep": "'[' * 15_000",
    "deep within": """'{"epoch": ' + '[' * 5000 + ']' * 5000 + ', "metric": 1}'""",
    "zeros": r"'\0' * 5_000_000",
    "more digits than a float has": """'{"epoch": 1, "metric": 1' + '0' * 400 + '}'""",
    "no text": r"'\udcff\udcfe'",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_in_the_file_of_metrics_does_not_end_its_follower(
    bomb: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = f"open('metrics.jsonl', 'w', errors='surrogateescape').write({BOMBS[bomb]} + chr(10))"
    place.script("file", before=written)
    place.job("file")
    launcher = place.launcher(monkeypatch)
    (only,) = launcher.recur().tries
    launcher.close()
    assert only.outcome is not None
    assert (only.ending, only.outcome.metric) == ("converged", 0.9)


def most_memory(run: Callable[[], None]) -> int:
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_line_without_end_takes_little_memory_wherever_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    with file.open("wb") as out:
        out.truncate(64 << 20)
        out.seek(0, os.SEEK_END)
        out.write(b'\n{"epoch": 1, "metric": 0.5}\n')

    def follow() -> None:
        lines = ScriptLines(reader_of(MetricsSource(file=str(file))), lambda: None)
        lines.follow(file)
        assert lines.next(PATIENCE_SECONDS) == (Line("1", 0.5), None)
        lines.close()

    def hear() -> None:
        lines = ScriptLines(reader_of(MetricsSource(regex=r"acc=(\S+)")), lambda: None)
        for _ in range(1000):
            lines.receive(b"x" * 65_536)
        lines.receive(b"\nacc=0.5")
        lines.receive(b"")
        lines.close()
        assert lines.next(PATIENCE_SECONDS) == (Line("1", 0.5), None)

    for run in (follow, hear):
        assert most_memory(run) < 4 << 20


def test_of_a_long_line_the_beginning_is_looked_at() -> None:
    lines = ScriptLines(reader_of(MetricsSource(regex=r"acc=(\S+)")), lambda: None)
    lines.receive(b"acc=0.5 " + b"x" * LONGEST + b" acc=0.6\n" + b"x" * 10 * LONGEST + b"acc=0.7\nacc=0.8\n")
    lines.receive(b"")
    lines.close()
    assert [lines.next(0), lines.next(0), lines.next(0)] == [(Line("1", 0.5), None), (Line("2", 0.8), None), None]


def test_a_listener_that_fails_stops_no_output(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def hear(chunk: bytes) -> None:
        raise ValueError("nobody thought of this")

    here, there = os.pipe()
    output = Output(here, LogFile(tmp_path / "log"), hear)
    for _ in range(64):
        os.write(there, b"x" * 65_536)  # more than a pipe holds
    os.close(there)
    output.close()
    eventually(lambda: (tmp_path / "log").stat().st_size == 64 * 65_536)
    assert caplog.text.count("not read for metrics any more") == 1


def test_samples_are_read_from_any_line_and_what_is_no_number_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    reader = reader_of(MetricsSource(regex=r"acc=([0-9.]+)", epoch_regex=r"epoch (\d+)", samples=r"(\S+) samples"))
    texts = ["50,000 samples", "epoch 1", "some samples", "acc=0.5, 60000 samples", "nothing"]
    assert [reader(text) for text in texts] == [
        *(Line(samples=50_000), Line("1"), Line(), Line(metric=0.5, samples=60_000), None)
    ]
    assert "not a whole number of samples" in caplog.text
    reader = reader_of(MetricsSource(file="metrics.jsonl"))
    texts = ['{"epoch": 1, "metric": 0.5, "samples": 800}', '{"epoch": 2, "samples": -1}', '{"other": 3}']
    assert [reader(text) for text in texts] == [Line("1", 0.5, 800), Line("2"), None]
