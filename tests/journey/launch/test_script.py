"""`zeus run` with a script that uses Zeus itself: it tells how it ended, and if it does not, its launcher finds out."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from support.launch_place import Place, is_running, tries
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.cli.run_view import standing
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.device.clock import RealClock
from zeus.job import Ending, Gpus, JobSpec, Kind, Outcome, Trial, UsageSegment
from zeus.job.wire import dumps, to_json
from zeus.launch.job_file.values import MetricsSource
from zeus.launch.progress import Live
from zeus.launch.script import ScriptRunner, outcome_file
from zeus.launch.watch import Watcher
from zeus.monitor import ZeusMonitor
from zeus.monitor.gpus_of import gpus_of
from zeus.settings import Mode
from zeus.store.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("warm_torch")

# What a training does that speaks for itself, without the weight of torch.
SPEAKS = """
import os, pathlib, sys, time
from zeus.job import Ending, Outcome
from zeus.client.catalog import find_job
from zeus.client.local import LocalJobs
from zeus.job.wire import dumps, to_json

job, trial = find_job(os.environ["ZEUS_JOB_ID"]), int(os.environ["ZEUS_TRIAL"])
pathlib.Path("pid").write_text(str(os.getpid()))
used = dict(joules=500.0, seconds=2.0, epochs=2, metric=0.95)
file = pathlib.Path(os.environ["ZEUS_OUTCOME_FILE"])
leave = lambda ending: file.write_text(dumps(to_json(Outcome(ending=ending, **used))))
"""
TELL = "job.tell(trial, Outcome(ending=Ending.CONVERGED, **used))"
PROGRESS = "job.progress(trial, Outcome(ending=Ending.LOST, **used), 1000.0)"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    here = Place(tmp_path)
    here.job(metrics="")
    return here


def script(place: Place, *lines: str) -> None:
    (place.folder / "train.py").write_text("\n".join([SPEAKS, *lines]))


def test_what_the_script_told_is_what_happened(place: Place) -> None:
    script(place, TELL, "sys.exit(5)")  # what fails after the training is over is not the training
    done = place.run("--json")
    (only,) = tries(json.loads(done.stdout))
    assert (done.returncode, only["ending"], only["joules"], only["epochs"]) == (0, "converged", 500.0, 2)
    assert "The command then failed with exit code 5. Its output is in" in done.stderr


def test_an_outcome_that_the_store_did_not_hear_is_read_from_its_file(place: Place) -> None:
    script(place, "leave(Ending.CONVERGED)")
    (only,) = tries(place.report())
    assert (only["ending"], only["joules"]) == ("converged", 500.0)


def test_a_script_that_left_its_loop_by_itself_did_not_converge(place: Place) -> None:
    script(place, "leave(Ending.LOST) if trial == 1 else " + TELL)
    assert [one["ending"] for one in tries(place.report())] == ["not_converged", "converged"]


@pytest.mark.parametrize("how", [PROGRESS, "leave(Ending.LOST)"], ids=["said in time", "left in the file"])
def test_a_crash_costs_what_the_script_last_said_it_had_used(place: Place, how: str) -> None:
    script(place, f"if trial == 1: {how}; raise MemoryError", TELL)
    crashed, other = tries(place.report())
    assert (crashed["ending"], crashed["joules"], crashed["epochs"]) == ("crashed", 500.0, 2)
    assert (other["ending"], other["batch_size"] == crashed["batch_size"]) == ("converged", False)


def test_a_script_that_tells_nothing_fails_with_what_to_do(place: Place) -> None:
    (place.folder / "train.py").write_text("print('trained')")
    done = place.run()
    assert done.returncode == 1
    assert "ZeusDataLoader" in done.stderr and "add a [metrics] table" in done.stderr
    assert place.store().trial("toy", 1).trial.ending is Ending.LOST


def test_an_interrupted_script_is_ended_and_its_joules_are_kept(place: Place) -> None:
    script(place, PROGRESS, "pathlib.Path('ready').touch(); time.sleep(1000)")
    process = place.start()
    eventually((place.folder / "ready").exists)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    eventually(lambda: not is_running(place.pid()))
    lost = place.store().trial("toy", 1).trial
    assert lost.ending is Ending.LOST
    assert lost.outcome is not None and lost.outcome.joules == 500.0


class Deaf(RecurringJob):
    """A store that is away while the training runs."""

    def renew(self, number: int, so_far: Outcome | None = None, **more: float) -> Trial:
        raise OSError("the database does not answer")


def test_a_store_that_is_away_meanwhile_ends_no_training(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.script()
    place.job(batch_sizes=[16])
    store = MemoryStore()
    launcher = place.launcher(monkeypatch, store=store)
    launcher.job = Deaf.find(LocalJobs(store), "toy")
    assert launcher.recur().converged


class Renewed(RecurringJob):
    """Leaves a file when a lease was renewed, for which the script waits."""

    def renew(self, number: int, so_far: Outcome | None = None, **more: float) -> Trial:
        Path("renewed").touch()
        return super().renew(number, so_far)


@pytest.mark.parametrize("way", ["script", "watched"])
def test_a_lease_is_renewed_while_the_script_runs(
    way: str, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in place.env.items():
        monkeypatch.setenv(name, value)
    spec = JobSpec(job_id_prefix="toy", batch_sizes=[8], default_batch_size=8, target_metric=0.5)
    job, monitor = Renewed.register(LocalJobs(MemoryStore()), spec), ZeusMonitor([0])
    here = gpus_of(monitor)
    trial, log = job.ask(here), tmp_path / "1.log"
    waits = "import os, time\nwhile not os.path.exists('renewed'): time.sleep(0.01)\nprint('acc=1', flush=True)"
    command, hasty = [sys.executable, "-c", waits], RealClock(speed=10_000)
    if way == "script":
        job.tell(trial.number, Outcome(ending=Ending.CONVERGED, joules=1.0, seconds=1.0, epochs=1))
        ran = ScriptRunner(job=job, clock=hasty).run(trial, command, os.environ, log)
    else:
        metrics = MetricsSource(regex=r"acc=(\d)")
        watcher = Watcher(job=job, monitor=monitor, metrics=metrics, mode=Mode.OFF, clock=hasty)
        ran = watcher.run(trial, command, os.environ, log)
    assert (ran.outcome.ending, ran.exit_code) == (Ending.CONVERGED, 0)


@pytest.mark.parametrize("limit", [150.0, None], ids=["read", "not read"])
def test_the_limit_of_a_running_training_is_shown_if_it_was_read(
    limit: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = JobSpec(job_id_prefix="toy", batch_sizes=[8], default_batch_size=8, target_metric=0.5)
    job, shown = RecurringJob.register(LocalJobs(MemoryStore()), spec), []

    def show(live: Live) -> None:
        shown.append(live)
        job.tell(trial.number, Outcome(ending=Ending.CONVERGED, joules=9.0, seconds=2.0, epochs=1))
        Path("shown").touch()

    trial = job.ask(Gpus("V100", 1, 250.0))
    steps = [UsageSegment.of(Kind.STEP, watts, True, 5, 4.0, 1.0) for watts in (250.0, limit)]
    steps.append(UsageSegment.of(Kind.EVALUATION, 250.0, True, 1, 1.0, 0.5))
    so_far = Outcome(ending=Ending.LOST, joules=9.0, seconds=2.0, stretches=tuple(steps))
    (tmp_path / "so_far.json").write_text(dumps(to_json(so_far)))
    log = tmp_path / "1.log"
    trains = f"import os, time\nos.rename('so_far.json', {str(outcome_file(log))!r})"
    trains += "\nwhile not os.path.exists('shown'): time.sleep(0.01)"
    ScriptRunner(job=job, on_live=show).run(trial, [sys.executable, "-c", trains], os.environ, log)
    assert standing(shown[0])["limit"] == ("150 W" if limit else "-")


LISTING = """
import sys
if "32" in sys.argv: sys.exit("CUDA error: out of memory")
import torch
from zeus import ZeusDataLoader
data = torch.utils.data.TensorDataset(torch.zeros(12_800, 1))
loader = ZeusDataLoader(data, 7, max_epochs=99, target_metric=0.1)
for epoch in loader.epochs():
    for batch in loader:
        assert len(batch[0]) == 64
    loader.report_metric(0.45 * (epoch + 1))
"""


def test_listing_1_of_the_paper_runs_as_a_job(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    place = Place(tmp_path, "virtual:v100?clock=virtual")
    place.job(metrics="", batch_sizes=[32, 64], default_batch_size=32, power_limits=[150, 200])
    (tmp_path / "train.py").write_text(LISTING)
    report = place.report()
    crashed, done = tries(report)
    assert (crashed["batch_size"], crashed["ending"]) == (32, "crashed")
    assert (done["batch_size"], done["ending"], done["epochs"], done["metric"]) == (64, "converged", 2, 0.9)
    assert done["joules"] > 0
    assert done["power_limit"] in (150.0, 200.0)
    observed = tries(place.report(ZEUS_READ_ONLY="1"))[-1]
    assert set(observed["limits"]) == {"250"}
    assert observed["power_limit"] is None  # the best limit is known, but it was not in force


PROFILED = """
import torch
from zeus import ZeusDataLoader

loader = ZeusDataLoader(torch.utils.data.TensorDataset(torch.zeros(64 * 150, 1)), 64, max_epochs=6, target_metric=0.9)
for epoch in loader.epochs():
    for batch in loader:
        pass
    loader.report_metric(0.9 * (epoch == 5))
"""


def test_a_script_that_never_reports_a_metric_is_run_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    place = Place(tmp_path, "virtual:v100?clock=virtual")
    place.job(metrics="", batch_sizes=[32, 64], default_batch_size=64, max_epochs=2)
    (tmp_path / "train.py").write_text(PROFILED.replace("    loader.report_metric(0.9 * (epoch == 5))\n", ""))
    done = place.run()
    assert done.returncode == 1
    assert "the script trained to its end and reported no metric" in done.stderr
    assert len(place.store().trials("toy")) == 1


@pytest.mark.parametrize("profiling", ["walk", "paper"])
def test_a_job_file_says_how_its_script_profiles(tmp_path: Path, profiling: str) -> None:
    pytest.importorskip("torch")
    place = Place(tmp_path, "virtual:v100?clock=virtual")
    place.job(metrics="", batch_sizes=[64], default_batch_size=64, eta=0, profiling=profiling)
    (tmp_path / "train.py").write_text(PROFILED)
    (only,) = tries(place.report())
    assert only["ending"] == "converged"
    (kept,) = place.store().profiles("toy").values()
    assert (kept.unmeasured == ()) is (profiling == "paper")
    assert all((one.seconds >= 5) is (profiling == "paper") for one in kept.slices)
