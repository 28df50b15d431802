"""An unmodified script as its launcher sees it: its lines, its limits, its surroundings and its end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from support.launch_place import LINES, Place, is_running
from support.paths import EXAMPLES
from support.waiting import eventually
from zeus.errors import InputError
from zeus.job import Ending, Gpus
from zeus.launch.recurrence import LaunchedRecurrence
from zeus.store.memory import MemoryStore

pytestmark = pytest.mark.usefixtures("warm")

V100 = "Tesla V100-PCIE-32GB"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    here = Place(tmp_path)
    here.script()
    return here


def recur(place: Place, monkeypatch: pytest.MonkeyPatch) -> LaunchedRecurrence:
    launcher = place.launcher(monkeypatch)
    try:
        return launcher.recur()
    finally:
        launcher.close()


@pytest.mark.parametrize("style", LINES)
def test_a_job_converges_however_its_script_writes_its_lines(
    style: str, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.script(style)
    place.job(style)
    (only,) = recur(place, monkeypatch).tries
    assert only.outcome is not None and only.outcome.joules is not None
    assert (only.ending, only.outcome.epochs, only.outcome.metric) == (Ending.CONVERGED, 4, 0.9)
    assert only.outcome.joules > 0 < only.outcome.seconds


@pytest.mark.parametrize("style", ["metric alone", "begin"])
def test_a_start_that_counts_as_part_of_the_first_epoch_is_told_once(
    style: str, place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    place.script(style, before="for _ in range(400): step(gpus, size)")
    place.job(style, batch_sizes=[16])
    launcher = place.launcher(monkeypatch)
    for _ in range(2):
        launcher.recur()
    launcher.close()
    told = [text for text in caplog.messages if "its start-up counts as part of the first one" in text]
    assert len(told) == (style != "begin")


def test_a_size_of_which_one_epoch_is_known_not_to_fit_is_not_run(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.job(batch_sizes=[16, 64], power_limits=[250])
    store = MemoryStore()
    launcher = place.launcher(monkeypatch, store=store)
    store.profiled("toy", 64, Gpus(V100, 1, 250.0), joules=1e8, seconds=1e6)
    launcher.recur()
    unfit, again = launcher.recur().tries
    assert unfit.outcome is not None and unfit.outcome.next_epoch_cost is not None
    assert (unfit.batch_size, unfit.ending, unfit.outcome.joules, unfit.outcome.epochs) == (64, Ending.STOPPED, 0.0, 0)
    assert not (launcher.logs / f"{unfit.number}.log").exists()
    assert (again.batch_size, again.ending) == (16, Ending.CONVERGED)


def test_each_epoch_tries_one_limit_and_the_best_is_kept_for_later_trials(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.job(batch_sizes=[16], power_limits=[250, 200, 150])
    store = MemoryStore()
    launcher = place.launcher(monkeypatch, store=store)
    launcher.recur()
    profile = launcher.profile(16)
    assert profile is not None
    measured = [(one.limit_watts, one.steps) for one in profile.slices]
    assert measured in ([(250, 1), (200, 1), (150, 1)], [(250, 1), (200, 1)])  # when busy the second may look bad
    launcher.recur()
    launcher.recur()
    settled = launcher.profile(16)
    assert settled is not None
    assert launcher.ran[3].limit_watts == settled.best_limit(launcher.cost)
    epochs = [one.trial.outcome.stretches for one in store.trials("toy") if one.trial.outcome is not None]
    assert {(one.limit_watts, one.cold) for one in epochs[0]} >= {(250.0, True), (250.0, False)}


def test_the_script_may_save_its_work_when_the_target_is_reached(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.script("begin", after="time.sleep(0.3); pathlib.Path('model').write_text('weights')", epochs=4)
    place.job("begin")
    assert recur(place, monkeypatch).converged
    assert (place.folder / "model").read_text() == "weights"


def test_the_script_is_ended_when_it_begins_an_epoch_that_nobody_needs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.script("begin", epochs=10_000)
    place.job("begin", batch_sizes=[16])
    assert recur(place, monkeypatch).converged
    eventually(lambda: not is_running(place.pid()))


def test_a_script_that_does_more_than_its_epochs_is_ended_as_not_converged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.script("end with metric", epochs=10_000)
    place.job(batch_sizes=[16], target_metric=2.0, max_tries=1)
    (only,) = recur(place, monkeypatch).tries
    assert only.outcome is not None
    assert (only.ending, only.outcome.epochs) == (Ending.NOT_CONVERGED, 6)
    eventually(lambda: not is_running(place.pid()))


@pytest.mark.usefixtures("cold")
def test_a_script_that_will_not_end_is_killed_with_all_that_it_started(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nimport subprocess\n"
    stubborn += "worker = subprocess.Popen(['sleep', '1000'])\npathlib.Path('worker').write_text(str(worker.pid))"
    place.script(before=stubborn, after="time.sleep(1000)")
    place.job(batch_sizes=[16])
    launcher = place.launcher(monkeypatch, grace=0.2)
    assert launcher.recur().converged
    eventually(lambda: not is_running(place.pid()))
    worker = int((place.folder / "worker").read_text())
    eventually(lambda: not is_running(worker))


def test_the_script_is_told_everything_in_its_environment_and_sees_its_gpus_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path, "virtual:v100x3?speed=40&watched=idle")
    place.script(before="import json; pathlib.Path('told').write_text(json.dumps(dict(os.environ)))")
    more = 'learning_rate = { base = 0.1, rule = "linear" }\nenv = { FLAVOUR = "sour" }'
    place.job(gpus=[2, 0], mode="observe", profiling="paper", power_limits=[250], more=more)
    place.env["ZEUS_COST_THRESH"] = "5"
    (only,) = place.launcher(monkeypatch, mask="1,2,0").recur().tries
    told = json.loads((tmp_path / "told").read_text())
    assert (told["ZEUS_JOB_ID"], told["ZEUS_TRIAL"], told["ZEUS_BATCH_SIZE"]) == ("toy", "1", "16")
    assert (told["ZEUS_LEARNING_RATE"], told["ZEUS_MAX_EPOCHS"], told["ZEUS_TARGET_METRIC"]) == ("0.1", "6", "0.9")
    assert (told["ZEUS_ETA_KNOB"], told["ZEUS_MODE"], told["FLAVOUR"]) == ("0.5", "observe", "sour")
    assert told["ZEUS_PROFILING"] == "paper"
    assert int(told["ZEUS_SEED"]) >= 0
    assert "ZEUS_COST_THRESH" not in told  # there is no bound before the first convergence
    assert told["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (only.ask.gpu_model, only.ask.max_watts) == (f"2 x {V100}", 500.0)


def test_what_an_earlier_trial_wrote_to_the_file_is_not_taken_for_this_ones(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.script("file")
    place.job("file")
    (place.folder / "metrics.jsonl").write_text('{"epoch": 1, "metric": 1.0}\n')
    (only,) = recur(place, monkeypatch).tries
    assert only.outcome is not None and only.outcome.epochs == 4
    assert (place.folder / "metrics.jsonl.old").read_text() == '{"epoch": 1, "metric": 1.0}\n'


ANEW = """
    metric = train(epoch); said.append((epoch, metric))
    with open("metrics.jsonl", "w") as file:
        for one in said[-{kept}:]: print('{{"epoch": %s, "metric": %s}}' % one, file=file)
"""


@pytest.mark.parametrize("kept", [99, 1])
def test_a_file_that_is_written_anew_for_each_epoch_is_read_to_its_end(
    kept: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LINES, "anew", ANEW.format(kept=kept))
    place.script("anew", before="said = []")
    place.job("file")
    (only,) = recur(place, monkeypatch).tries
    assert only.outcome is not None and only.ending is Ending.CONVERGED
    assert only.outcome.epochs == 4 or kept == 1  # a line that did not stand for long may be missed


def test_a_file_of_metrics_is_followed_by_one_run_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path)
    place.script("file")
    place.job("file")
    first = place.launcher(monkeypatch)
    with pytest.raises(InputError, match=r"another `zeus run` is following .*metrics\.jsonl"):
        place.launcher(monkeypatch)
    first.close()
    place.launcher(monkeypatch).close()


def test_a_metric_that_is_no_number_reaches_no_target_and_harms_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.script(before="print('acc=nan'); print('acc=soon')")
    place.job(higher_is_better=False, target_metric=0.5, batch_sizes=[16])
    (only,) = recur(place, monkeypatch).tries
    assert only.outcome is not None
    assert (only.ending, only.outcome.metric) == (Ending.CONVERGED, 0.225)


def test_the_example_of_an_unmodified_script_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(tmp_path, "virtual:v100")
    examples = EXAMPLES
    shutil.copytree(examples, tmp_path / "examples")
    shutil.copy(examples / "unmodified.toml", tmp_path / "job.toml")
    assert recur(place, monkeypatch).converged
