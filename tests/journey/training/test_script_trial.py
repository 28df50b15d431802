"""A training under `zeus run`: the script's side of a trial, on a virtual V100 with a SQLite store."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from support.cards import RESNET, VirtualCards
from support.programs import run_python
from support.waiting import limits
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.job import replace

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'zeus-energy[torch]'")

from torch.utils.data import TensorDataset  # noqa: E402

from zeus import ZeusDataLoader  # noqa: E402
from zeus.device.virtual import VirtualGpu  # noqa: E402
from zeus.job import (  # noqa: E402
    Ending,
    Gpus,
    JobSpec,
    Outcome,
    Profiled,
    Trial,
)
from zeus.job.wire import from_json, loads  # noqa: E402
from zeus.profile import ProfileKey  # noqa: E402
from zeus.store import Store, open_store  # noqa: E402

pytestmark = pytest.mark.usefixtures("warm")
NAME = "Tesla V100-PCIE-32GB"
HERE = Gpus(NAME, 1, 250.0)
SPEC = JobSpec(
    job_id="asr",
    job_id_prefix="asr",
    batch_sizes=(64, 128),
    default_batch_size=128,
    target_metric=0.8,
    policy="paper",
)


class Launcher:
    """What `zeus run` does before it starts a script, and sees after."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._env = folder / "store", monkeypatch
        self.url = f"sqlite:///{self.folder}/zeus.db"
        self.ahead = 0.0  # of the clock that the script goes by
        self.store: Store = open_store(self.url, wall=lambda: time.time() + self.ahead)
        self.file = folder / "outcome.json"
        monkeypatch.setenv("ZEUS_STORE", self.url)
        monkeypatch.setenv("ZEUS_OUTCOME_FILE", str(self.file))
        self.job = RecurringJob.register(LocalJobs(self.store), SPEC)

    def ask(self, spec: JobSpec = SPEC, recurrence: int | None = None) -> Trial:
        self.job = RecurringJob.register(LocalJobs(self.store), spec)
        trial = self.job.ask(HERE, recurrence)
        told = {
            "ZEUS_JOB_ID": self.job.spec.id,
            "ZEUS_TRIAL": trial.number,
            "ZEUS_BATCH_SIZE": trial.batch_size,
            "ZEUS_ETA_KNOB": spec.eta_knob,
            "ZEUS_TARGET_METRIC": spec.target_metric,
            "ZEUS_MAX_EPOCHS": spec.max_epochs,
            "ZEUS_COST_THRESH": "inf" if trial.decision.cost_limit is None else trial.decision.cost_limit,
        }
        for name, value in told.items():
            self._env.setenv(name, str(value))
        return trial

    def ended(self, trial: Trial) -> Outcome:
        outcome = self.job.trial(trial.number).outcome
        assert outcome is not None
        return outcome

    def left(self) -> Outcome:
        return from_json(loads(self.file.read_text()), Outcome)


@pytest.fixture(autouse=True)
def gpu(virtual_cards: VirtualCards, monkeypatch: pytest.MonkeyPatch) -> VirtualGpu:
    card = virtual_cards(RESNET)[0]
    monkeypatch.setenv("ZEUS_QUIET", "1")
    monkeypatch.setenv("ZEUS_PATIENCE", "0")  # nobody waits for a store that does not come back
    monkeypatch.setenv("ZEUS_TIME_LIMITS", limits(store_retry=0.2))
    return card


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    return Launcher(tmp_path, monkeypatch)


def data(count: int = 6400) -> TensorDataset:
    return TensorDataset(torch.zeros(count, 1))


def train(metrics: Iterable[float], size: int = 6400, **keywords: object) -> ZeusDataLoader:
    """The whole of a user's script."""
    loader = ZeusDataLoader(data(size), 32, 50, **keywords)  # type: ignore[arg-type]
    evaluation = ZeusDataLoader(data(640), 128)
    reports = iter(metrics)
    for _ in loader.epochs():
        for _ in loader:
            pass
        for _ in evaluation:
            pass
        loader.report_metric(next(reports))
    return loader


# ---------------------------------------------------------------------------------------------- how it ends


def test_a_run_that_reaches_the_target_tells_what_it_used(launcher: Launcher, gpu: VirtualGpu) -> None:
    trial = launcher.ask()
    summary = train([0.5, 0.7, 0.9]).summary
    outcome = launcher.ended(trial)
    assert (outcome.ending, outcome.epochs, outcome.metric) == (Ending.CONVERGED, 3, 0.9)
    assert outcome.joules == summary.joules == pytest.approx(gpu.energy(), rel=0.01)
    assert outcome.seconds == summary.seconds
    assert not launcher.file.exists()


def test_the_direction_of_the_metric_is_the_jobs(launcher: Launcher) -> None:
    trial = launcher.ask(replace(SPEC, job_id="wer", target_metric=40.0, higher_is_better_metric=False))
    train([80.0, 39.0], size=640)
    assert launcher.ended(trial).ending is Ending.CONVERGED


def test_a_run_that_does_all_its_epochs_has_not_converged(launcher: Launcher) -> None:
    trial = launcher.ask(replace(SPEC, max_epochs=2))
    train([0.1] * 2, size=640)
    assert (launcher.ended(trial).ending, launcher.ended(trial).epochs) == (Ending.NOT_CONVERGED, 2)


def test_the_policy_stops_a_run_before_the_epoch_that_costs_too_much(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = launcher.ask()
    free = train([0.1, 0.9]).summary
    assert launcher.ended(first).ending is Ending.CONVERGED
    second = launcher.ask()
    assert second.batch_size == 64
    monkeypatch.delenv("ZEUS_COST_THRESH")  # the policy's word alone
    summary = train([0.1] * 50).summary
    outcome, limit = launcher.ended(second), second.decision.cost_limit
    assert limit is not None and limit == pytest.approx(2 * free.cost)
    assert (outcome.ending, summary.ending) == (Ending.STOPPED, Ending.STOPPED)
    assert outcome.epochs == summary.epochs > 1
    assert summary.cost <= limit < summary.cost + (outcome.next_epoch_cost or 0)


def test_a_size_of_which_not_even_one_epoch_fits_is_not_run_and_not_charged(launcher: Launcher) -> None:
    launcher.ask()
    train([0.9], size=12800)
    launcher.ask(recurrence=None)
    train([0.9], size=12800)  # both sizes are profiled now
    trial = launcher.ask()
    assert trial.decision.cost_limit is not None
    assert train([0.9], size=128000).summary.epochs == 0  # ten times as much data
    outcome = launcher.ended(trial)
    assert (outcome.ending, outcome.epochs, outcome.joules, outcome.seconds) == (Ending.STOPPED, 0, 0.0, 0.0)
    assert outcome.next_epoch_cost is not None and outcome.next_epoch_cost > trial.decision.cost_limit


@pytest.mark.parametrize("by", ["break", "exception"])
def test_a_loop_that_is_left_leaves_it_to_the_launcher_to_say_how(launcher: Launcher, by: str) -> None:
    trial = launcher.ask()

    def script() -> None:
        loader = ZeusDataLoader(data(), 32, 50)
        for epoch in loader.epochs():
            for _ in loader:
                pass
            loader.report_metric(0.1)
            if epoch == 1 and by == "exception":
                raise KeyError("the user's own")
            if epoch == 1:
                break

    if by == "break":
        script()
    else:
        with pytest.raises(KeyError):
            script()
    assert launcher.job.trial(trial.number).ending is Ending.OPEN
    left = launcher.left()
    assert (left.ending, left.epochs, left.metric) == (Ending.LOST, 1, 0.1)
    assert left.joules is not None and left.joules > 0


def test_a_loop_that_is_left_after_the_target_has_converged(launcher: Launcher) -> None:
    trial = launcher.ask()
    loader = ZeusDataLoader(data(640), 32, 50)
    with pytest.raises(KeyError):
        for _ in loader.epochs():
            loader.report_metric(0.9)
            assert launcher.ended(trial).ending is Ending.CONVERGED  # at once: what follows may kill the process
            raise KeyError
    assert launcher.ended(trial).epochs == 1
    assert not launcher.file.exists()


def test_unknown_energy_is_told_as_unknown(launcher: Launcher, gpu: VirtualGpu) -> None:
    trial = launcher.ask()
    loader = ZeusDataLoader(data(), 32, 50)
    for epoch in loader.epochs():
        for _ in loader:
            pass
        if epoch == 0:
            gpu.machine.lose(0)
        loader.report_metric(epoch / 2)
    assert math.isnan(loader.summary.joules)
    outcome = launcher.ended(trial)
    assert (outcome.ending, outcome.joules, outcome.epochs) == (Ending.CONVERGED, None, 3)


# ---------------------------------------------------------------------------------------------- on the way


def test_what_was_used_so_far_outlives_the_loss_of_the_run(launcher: Launcher) -> None:
    trial = launcher.ask()
    loader = ZeusDataLoader(data(), 32, 50)
    for epoch in loader.epochs():
        for _ in loader:
            pass
        loader.report_metric(0.3)
        if epoch == 2:
            break
    kept = launcher.store.trial("asr", trial.number).so_far
    assert kept is not None
    assert (kept.ending, kept.epochs, kept.metric) == (Ending.LOST, 2, 0.3)
    launcher.ahead += 3600
    launcher.store.expire("asr")
    assert launcher.job.trial(trial.number).outcome == kept


def test_a_run_whose_lease_lapsed_is_heard_all_the_same(launcher: Launcher) -> None:
    trial = launcher.ask()
    loader = ZeusDataLoader(data(640), 32, 50)
    for epoch in loader.epochs():
        launcher.ahead += 1e9
        launcher.store.expire("asr")
        loader.report_metric(epoch / 2)
    known = launcher.job.trial(trial.number)
    assert known.lost is not None
    assert known.ending is Ending.CONVERGED


def test_an_epochs_use_is_told_once_it_is_known_with_its_evaluation(launcher: Launcher) -> None:
    trial = launcher.ask()
    loader = train([0.1, 0.1, 0.1, 0.9], size=25600)
    notes = [fact for fact in launcher.store.log("asr").events if isinstance(fact, Profiled)]
    assert [(note.batch_size, note.gpu_model, note.max_watts) for note in notes] == [(128, NAME, 250.0)]
    profile = launcher.job.get(ProfileKey("asr", trial.batch_size, NAME, 1))
    assert profile is not None and loader.summary.limit is not None
    best = profile.at(loader.summary.limit)
    steps = 25600 // 128
    evaluation = notes[0].joules - best.joules / best.steps * steps
    assert 0.01 < evaluation / notes[0].joules < 0.05  # 640 samples beside 25600


def test_the_next_run_begins_with_the_stores_profile_and_the_jobs_limits(launcher: Launcher, gpu: VirtualGpu) -> None:
    spec = replace(SPEC, power_limits=(250, 200, 150), batch_sizes=(128,))
    trial = launcher.ask(spec)
    best = train([0.1, 0.1, 0.9]).summary.limit
    profile = launcher.job.get(ProfileKey("asr", trial.batch_size, NAME, 1))
    assert profile is not None and profile.limits == (250, 200, 150)
    launcher.ask(spec)
    loader = ZeusDataLoader(data(), 32, 50)
    for _ in loader.epochs():
        assert gpu.limit() == best
        loader.report_metric(0.9)
    assert not list(Path(os.environ["XDG_DATA_HOME"]).rglob("profiles/*"))


# ---------------------------------------------------------------------------------------------- a store in trouble


def spoil(folder: Path) -> None:
    """Somebody else's clean-up: the file is there, its tables are not."""
    with contextlib.closing(sqlite3.connect(folder / "zeus.db")) as db:
        for table in ("zeus_jobs", "zeus_trials"):
            db.execute(f"DROP TABLE {table}")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("zeus") and r.levelno >= logging.WARNING]


def test_a_store_that_vanishes_ends_nothing_and_the_outcome_is_left(
    launcher: Launcher, caplog: pytest.LogCaptureFixture
) -> None:
    launcher.ask()
    loader = ZeusDataLoader(data(), 32, 50)
    for epoch in loader.epochs():
        for _ in loader:
            pass
        if epoch == 0:
            spoil(launcher.folder)
        loader.report_metric(0.9 if epoch == 3 else 0.1)
    assert loader.summary.ending is Ending.CONVERGED
    left = launcher.left()
    assert (left.ending, left.epochs, left.joules) == (Ending.CONVERGED, 4, loader.summary.joules)
    said = [line for line in warnings(caplog) if "asr" in line]
    assert len(said) == 1 and "training continues" in said[0]


def test_without_a_store_the_cost_limit_of_the_environment_decides(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    launcher.ask()
    cost = train([0.1, 0.9]).summary.cost
    launcher.file.unlink(missing_ok=True)
    monkeypatch.setenv("ZEUS_STORE", "postgresql+psycopg://nobody@127.0.0.1:1/nowhere")
    monkeypatch.setenv("ZEUS_COST_THRESH", str(3 * cost))
    loader = train([0.1] * 50, higher_is_better=True)
    assert loader.summary.ending is Ending.STOPPED
    left = launcher.left()
    assert (left.ending, left.epochs, left.next_epoch_cost) == (
        Ending.STOPPED,
        loader.summary.epochs,
        loader.summary.next_epoch_cost,
    )
    assert len(warnings(caplog)) == 1


def test_a_store_that_is_back_in_time_hears_it_all(launcher: Launcher) -> None:
    trial = launcher.ask()
    away = launcher.folder.with_name("away")
    launcher.folder.rename(away)
    launcher.folder.write_text("")  # a file where the folder should be
    loader = ZeusDataLoader(data(640), 32, 50)
    for epoch in loader.epochs():
        if epoch == 1:
            launcher.folder.unlink()
            away.rename(launcher.folder)
        loader.report_metric(epoch / 2)
    assert launcher.ended(trial).ending is Ending.CONVERGED


def test_another_outcome_of_a_trial_that_has_ended_changes_and_breaks_nothing(launcher: Launcher) -> None:
    trial = launcher.ask()
    train([0.9], size=640)
    first = launcher.ended(trial)
    train([0.1, 0.9], size=640)  # a second loader in the same script
    assert launcher.ended(trial) == first
    assert not launcher.file.exists()


@pytest.mark.usefixtures("cold")
def test_where_no_database_can_be_opened_training_goes_on(launcher: Launcher) -> None:
    launcher.ask()
    script = """
import sys
import time
sys.modules["sqlite3"] = None
import zeus, torch
import zeus.optimizer.launched_trial, zeus.training.session, zeus.client.running
loader = zeus.ZeusDataLoader(torch.utils.data.TensorDataset(torch.zeros(640, 1)), 64, 5)
for _ in loader.epochs():
    for _ in loader:
        pass
    loader.report_metric(0.9)
print(loader.summary.ending)
"""
    assert run_python("-c", script).stdout == "converged\n"
    assert launcher.left().ending is Ending.CONVERGED
