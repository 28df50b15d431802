"""`zeus run` with an unmodified script: watched, measured, stopped and profiled from outside, on a virtual card."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.launch_place import Place, is_running, tries
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.cli.run import _print_text, _stored
from zeus.client.api import WHOLE, Excerpt
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.errors import LaunchError, NotKnown, StoreError
from zeus.job import Ending, JobSpec, Trial
from zeus.store.memory import MemoryStore

LIMIT = 250.0  # as the card is found
pytestmark = pytest.mark.usefixtures("warm")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    here = Place(tmp_path)
    here.script()
    here.job()
    return here


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch, place: Place):  # type: ignore[no-untyped-def]
    """Reads the power limit in force, as any process would."""
    for name in ("ZEUS_GPU", "ZEUS_VIRTUAL_STATE"):
        monkeypatch.setenv(name, place.env[name])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def read() -> float:
        from zeus.device.find import find

        return find()[0].limit()

    return read


def test_a_dry_run_tells_the_next_trial_and_stores_nothing(place: Place, limit: Callable[[], float]) -> None:
    new = json.loads(place.run("--dry-run", "--json").stdout)
    assert (new["job"], new["recurrences"], new["batch_size"]) == ("toy", None, 16)
    assert new["command"] == ["python", "train.py", "16", "x"]
    assert not (place.folder / "zeus.db").exists() and not (place.folder / "logs").exists() and limit() == LIMIT
    place.report()
    planned = json.loads(place.run("--dry-run", "--json").stdout)
    assert planned["recurrences"] == 1
    tried = tries(place.report())[0]
    names = ("batch_size", "reason", "cost_limit", "phase")
    assert [tried[name] for name in names] == [planned[name] for name in names]
    assert "Nothing was run or stored." in place.run("--dry-run").stdout


def test_a_dry_run_refuses_what_a_run_refuses(place: Place) -> None:
    place.report()
    place.job(target_metric=0.5)
    for flags in ((), ("--dry-run",)):
        done = place.run(*flags)
        assert done.returncode == 2 and "--revise" in done.stderr
    revised = place.run("--dry-run", "--revise")
    assert revised.returncode == 0 and "target_metric 0.9 -> 0.5" in revised.stdout


def test_a_store_that_is_named_is_used_for_logs_too(place: Place) -> None:
    other = f"sqlite:///{place.folder}/other/zeus.db"
    report = place.report("--store", other)
    assert report["store"] == other and Path(report["logs"]).is_relative_to(place.folder / "other")
    assert not (place.folder / "zeus.db").exists()


def test_the_report_has_the_promised_shape_and_nothing_else_is_on_stdout(place: Place) -> None:
    report = place.report("--recurrences", "2", ZEUS_QUIET="1")
    whole = {
        "job",
        "include",
        "recurrences",
        "default",
        "recent",
        "saving",
        "recent_saving",
        "surer",
        "lost",
        "store",
        "logs",
    }
    assert set(report) == whole
    assert set(report["recurrences"][0]) >= {"recurrence", "converged", "tries", "joules", "seconds", "cost"}
    fields = "trial batch_size power_limit ending epochs metric joules seconds cost cost_limit phase reason"
    assert set(tries(report)[0]) >= {*fields.split(), "eta", "gpu_model", "gpus", "limits", "overshoot"}
    assert [one["recurrence"] for one in report["recurrences"]] == [1, 2]
    assert report["saving"]["default_joules"] > 0
    assert sorted(file.name for file in Path(report["logs"]).iterdir()) == ["1.log", "2.log"]


def test_the_saving_is_the_one_that_zeus_jobs_shows(place: Place) -> None:
    place.run()
    report = place.report()
    shown, saving = LocalJobs(place.store(), "").full("toy"), report["saving"]
    assert saving["recurrences"] == shown["saving"]["recurrences"] == 2  # of the job, not of this run alone
    assert {name: saving[name] for name in shown["saving"]} == shown["saving"]
    assert (report["default"], report["recent_saving"]) == (shown["default"], shown["recent_saving"])
    for name in ("joules", "seconds", "cost"):  # names of version 0.1
        assert saving[f"default_{name}"] == shown["default"][name]
    assert (saving["joules_share"], saving["seconds_share"]) == (saving["share"], saving["time_share"])


def test_by_default_sizes_are_chosen_by_the_structured_policy_and_each_choice_says_why(place: Place) -> None:
    place.job(policy="structured")
    assert JobSpec(job_id_prefix="any", batch_sizes=(8,), default_batch_size=8).policy == "structured"
    report = place.report("--recurrences", "3")
    assert all(one["converged"] for one in report["recurrences"])
    first, *others = tries(report)
    assert (first["batch_size"], first["reason"]) == (16, "16 comes first; no size has reached the target yet")
    assert {one["phase"] for one in others} <= {"exploring", "sampling"}
    assert all(str(one["batch_size"]) in one["reason"] for one in others)


def test_quiet_says_nothing_and_otherwise_each_trial_and_the_saving_is_told(place: Place) -> None:
    quiet = place.run(ZEUS_QUIET="1")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    told = place.run()
    assert "recurrence 2, try 1: batch size 32" in told.stderr
    assert "reached the target" in told.stderr
    assert "default: batch size 16 at 250 W: " in told.stdout
    assert "2 recurrences (all, exploration included): " in told.stdout


def test_a_size_that_costs_too_much_is_stopped_and_another_is_tried_in_the_same_recurrence(place: Place) -> None:
    place.script("begin", epochs=99)  # so that starting Python is not charged
    place.job("begin", batch_sizes=[16, 64], beta=4.0, max_epochs=99)  # an epoch of 64 costs about eight trainings
    report = place.report("--recurrences", "2")
    first, stopped, *_, last = tries(report)
    assert [one["batch_size"] for one in (first, stopped, last)] == [16, 64, 16]
    assert (stopped["ending"], last["ending"]) == ("stopped", "converged")
    assert 0 < stopped["epochs"] < 99  # 1, unless the machine kept the first training waiting
    assert stopped["cost_limit"] == pytest.approx(4.0 * first["cost"])
    assert [one["converged"] for one in report["recurrences"]] == [True, True]


def test_a_crash_is_told_with_its_last_lines_and_the_size_is_not_offered_again(place: Place) -> None:
    trap = "if size == 16: print('CUDA out of memory. Tried to allocate 2 GiB'); sys.exit(1)"
    place.script(before=trap)
    done = place.run("--recurrences", "2")
    assert done.returncode == 0
    assert "crashed with exit code 1" in done.stderr
    assert "| CUDA out of memory. Tried to allocate 2 GiB" in done.stderr
    assert "batch size 16 crashed. It is not offered again unless you run" in done.stderr
    assert "zeus jobs reset toy --batch-size 16" in done.stderr
    sizes = [one.trial.batch_size for one in place.store().trials("toy")]
    assert sizes == [16, 32, 32]
    assert "has not reached the target yet, so there is nothing to compare with" in done.stdout


def test_a_size_that_crashed_is_offered_again_when_the_user_says_so(place: Place) -> None:
    place.job(batch_sizes=[16])
    place.script(before="if not os.path.exists('mended'): sys.exit('CUDA out of memory')")
    advice = re.search(r"`zeus (jobs reset .*)`", place.run().stderr)
    assert advice is not None
    (place.folder / "mended").touch()
    assert place.run().returncode == 1  # not yet
    subprocess.run(
        [sys.executable, "-m", "zeus.cli", *advice[1].split()], env=place.env, check=True, timeout=PATIENCE_SECONDS
    )
    assert [one["ending"] for one in tries(place.report())] == ["converged"]


def test_when_no_size_fits_into_memory_the_run_fails_with_what_to_do(place: Place) -> None:
    place.script(before="sys.exit('torch.OutOfMemoryError: CUDA out of memory')")
    done = place.run("--json")
    assert done.returncode == 1
    assert "Fix the training script or offer smaller sizes" in done.stderr
    assert [one["ending"] for one in tries(json.loads(done.stdout))] == ["crashed", "crashed"]
    assert place.run().returncode == 1
    assert len(place.store().trials("toy")) == 2  # none is offered again


def test_a_script_that_crashes_at_every_size_is_told_and_no_size_is_held_back(place: Place) -> None:
    place.job(batch_sizes=[8, 16, 32, 64], policy="paper")
    place.script(before="if not os.path.exists('mended'): import missing_module")
    done = place.run("--json")
    assert done.returncode == 1
    assert "no batch size was ruled out" in done.stderr
    assert "not offer" not in done.stderr
    report = json.loads(done.stdout)
    sizes = [one["batch_size"] for one in tries(report)]
    assert ([one["ending"] for one in tries(report)], len(set(sizes))) == (["crashed"] * 3, 3)  # 64 was not tried
    assert f"at every batch size tried, {sizes}" in done.stderr
    assert f"Its output is in {report['logs']}/3.log." in done.stderr
    assert done.stderr.count("ModuleNotFoundError: No module named 'missing_module'") == 1
    (place.folder / "mended").touch()
    (mended,) = tries(place.report())
    assert (mended["batch_size"], mended["ending"]) == (16, "converged")  # afresh, from the default
    assert "pruning round 1 of 2 explores 16" in mended["reason"]


def test_a_syntax_error_is_tried_once_and_printed_once(place: Place) -> None:
    place.job(batch_sizes=[8, 16, 32, 64])
    place.script(before="if if:")
    done = place.run("--json")
    assert done.returncode == 1 and "The command itself fails" in done.stderr
    assert [one["batch_size"] for one in tries(json.loads(done.stdout))] == [16]
    assert done.stderr.count("SyntaxError") == 1


class Unread(LocalJobs):
    """The jobs of a store that takes reports, and does not answer who wants to read all of a job."""

    def full(self, job_id: str, excerpt: Excerpt = WHOLE) -> dict[str, object]:
        raise StoreError("the store did not answer.")

    def trials(self, job_id: str, *, newest: int | None = None) -> list[dict[str, object]]:
        raise StoreError("the store did not answer.")


def test_a_script_that_crashes_at_every_size_is_told_though_the_past_cannot_be_read(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.job(batch_sizes=[8, 16, 32, 64])
    place.script(before="import missing_module")
    store = MemoryStore()
    launcher = place.launcher(monkeypatch, store=store)
    launcher.jobs = Unread(store, "here")
    with pytest.raises(LaunchError, match="no batch size was ruled out"):
        launcher.recur()
    assert store.job("toy").excused == (1, 2, 3)


def test_a_job_that_cannot_be_read_is_not_said_to_have_missed_its_target(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = place.launcher(monkeypatch)
    launcher.jobs = Unread(MemoryStore(), "here")
    (only,) = launcher.recur().tries
    told, mine = _stored(launcher, {only.number: only})
    _print_text(launcher, mine, told)
    said = capsys.readouterr().out
    assert "batch size 16 reached the target" in said
    assert "default: the job could not be read (the store did not answer), so there is nothing to compare with" in said


def test_a_store_that_refuses_to_go_on_is_not_taken_for_one_without_sizes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgotten(RecurringJob):
        def ask(self, *arguments: object, **named: object) -> Trial:
            if store.trials("toy"):
                raise NotKnown("job 'toy' is not in this store.")
            return super().ask(*arguments, **named)  # type: ignore[arg-type]

    place.script(before="import missing_module")
    store = MemoryStore()
    launcher = place.launcher(monkeypatch, store=store)
    launcher.job = Forgotten.find(LocalJobs(store), "toy")
    with pytest.raises(NotKnown, match="not in this store"):
        launcher.recur()
    assert store.job("toy").excused == ()


def test_a_bug_that_comes_later_is_told_as_soon_as_nothing_is_left_to_try(place: Place) -> None:
    place.script(before="if os.path.exists('broken'): os.kill(os.getpid(), signal.SIGSEGV)")
    place.run("--recurrences", "2")  # both sizes work
    (place.folder / "broken").touch()
    done = place.run()
    assert (done.returncode, "The command itself fails" in done.stderr) == (1, True)
    (place.folder / "broken").unlink()
    assert place.run().returncode == 0


@pytest.mark.parametrize(
    ("trap", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", "ended from outside by SIGTERM"),
        ("sys.exit(127)", "could not be run: it ended with exit code 127 and printed nothing. Its output is in"),
    ],
    ids=["ended", "not run"],
)
def test_what_is_not_the_batch_sizes_fault_is_not_held_against_it(place: Place, trap: str, said: str) -> None:
    place.script(before=f"if not os.path.exists('once'): open('once', 'w'); {trap}")
    done = place.run()
    assert done.returncode == 1
    assert said in done.stderr
    assert place.store().trial("toy", 1).trial.ending is Ending.LOST
    assert [one["batch_size"] for one in tries(place.report())] == [16]


def test_a_target_that_is_never_reached_ends_with_exit_code_3(place: Place) -> None:
    place.job(target_metric=2.0, max_tries=2)
    done = place.run("--json", "--recurrences", "5")
    assert done.returncode == 3
    assert "in 2 trials none of the batch sizes [16] reached a metric >= 2" in done.stderr
    report = json.loads(done.stdout)
    assert len(report["recurrences"]) == 1  # what follows would go the same way
    assert [one["ending"] for one in tries(report)] == ["not_converged"] * 2
    assert report["saving"] is None


def test_while_nothing_has_ever_converged_a_recurrence_runs_three_full_trials(place: Place) -> None:
    place.job(target_metric=2.0, batch_sizes=[8, 16, 32, 64])
    done = place.run("--json", STEPS="4")
    assert done.returncode == 3
    assert [one["ending"] for one in tries(json.loads(done.stdout))] == ["not_converged"] * 3
    assert done.stderr.count("the default batch size 16 missed the target (metric >= 2): its last metric was 0.9") == 1


def test_a_direction_that_is_wrong_is_doubted_when_the_first_metric_reaches_the_target(place: Place) -> None:
    place.job(higher_is_better=False)
    first, second = place.run(), place.run()
    assert (first.returncode, second.returncode) == (0, 0)
    assert "the first metric that was ever reported, 0.225, already reaches the target (metric <= 0.9)" in first.stderr
    assert "higher_is_better is false: if that is wrong, set it to true" in first.stderr
    assert "ever reported" not in second.stderr  # the owner has been told


def test_a_price_that_is_no_number_is_refused_before_anything_runs(place: Place) -> None:
    place.job()
    place.env["ZEUS_PRICE_PER_KWH"] = "abc"
    done = place.run()
    assert done.returncode == 2
    assert "ZEUS_PRICE_PER_KWH='abc': give a number" in done.stderr
    assert nothing_was_changed(place)


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_ends_its_script_restores_the_limit_and_goes_on_next_time(
    place: Place, limit, number: signal.Signals
) -> None:
    place.job(power_limits=[150])
    process = place.start(STEPS="100000")
    pid = place.pid()
    eventually(lambda: limit() == 150)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 128 + number  # as shells say it
    assert f"interrupted by {number.name}. The command was ended, and its trial is lost. The next" in err
    assert err.strip().endswith("begins a new recurrence.") and "  lost (" in err
    eventually(lambda: not is_running(pid))
    assert limit() == LIMIT
    lost = place.store().trial("toy", 1).trial
    assert lost.ending is Ending.LOST
    assert lost.outcome is not None and lost.outcome.joules is not None and lost.outcome.joules > 0
    report = place.report()
    assert [one["recurrence"] for one in report["recurrences"]] == [2]
    assert tries(report)[0]["phase"] == "pruning"  # what was given up holds nobody back


DEAF = """
signal.signal(signal.SIGINT, lambda *_: pathlib.Path("asked").touch())
signal.signal(signal.SIGTERM, lambda *_: pathlib.Path("asked again").touch())
pathlib.Path("ready").touch()
"""


@pytest.mark.usefixtures("cold")
def test_a_second_interrupt_does_not_wait_for_a_script_that_will_not_end(place: Place, limit) -> None:
    place.script(before=DEAF)
    place.job(power_limits=[150])
    process = place.start(STEPS="100000")
    eventually((place.folder / "ready").exists)
    pid = place.pid()
    assert limit() == 150
    process.send_signal(signal.SIGINT)
    eventually((place.folder / "asked").exists)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert not (place.folder / "asked again").exists()
    eventually(lambda: not is_running(pid))
    eventually(lambda: limit() == LIMIT)
    assert place.store().trial("toy", 1).trial.ending is Ending.LOST


@pytest.mark.parametrize("env", [{"ZEUS_READ_ONLY": "1"}, {"ZEUS_MODE": "off"}], ids=["read-only", "off"])
def test_who_may_not_set_a_limit_never_does(place: Place, env: dict[str, str]) -> None:
    place.script(before='seen = open("limits", "a")', after="")
    text = (place.folder / "train.py").read_text()
    looks = "    print(gpus[0].limit(), file=seen, flush=True); step(gpus, size)\n"
    (place.folder / "train.py").write_text(text.replace("        step(gpus, size)\n", f"    {looks}"))
    place.job(power_limits=[250, 150])
    assert place.report("--recurrences", "2", **env)["recurrences"][1]["converged"]
    assert {float(line) for line in (place.folder / "limits").read_text().split()} == {LIMIT}


def test_two_runs_of_one_job_at_once_share_its_trials(place: Place) -> None:
    place.script(before="while not pathlib.Path('go').exists(): time.sleep(0.02)")
    both = [place.start("--json") for _ in range(2)]
    store = place.store()
    eventually(lambda: store.names().page == ["toy"] and len(store.trials("toy")) == 2)
    (place.folder / "go").touch()
    reports = [json.loads(one.communicate(timeout=PATIENCE_SECONDS)[0]) for one in both]
    assert [one.returncode for one in both] == [0, 0]
    seen = [one for report in reports for one in tries(report)]
    assert sorted(one["trial"] for one in seen) == [1, 2]
    assert sorted(one["phase"] for one in seen) == ["concurrent", "pruning"]


@pytest.mark.usefixtures("cold")
def test_a_run_that_is_killed_takes_its_script_along_and_the_next_one_works_at_once(place: Place, limit) -> None:
    place.job(power_limits=[150])
    process = place.start(STEPS="100000")
    pid = place.pid()
    eventually(lambda: limit() == 150)
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    eventually(lambda: not is_running(pid))
    eventually(lambda: limit() == LIMIT)
    assert place.store().trial("toy", 1).trial.ending is Ending.OPEN  # until its lease lapses
    assert place.report()["recurrences"][0]["converged"] is True


def test_a_prior_takes_the_place_of_first_looks(place: Place) -> None:
    place.job(num_pruning_rounds=0, mab_prior_mean=100.0, mab_prior_precision=1.0)
    (only,) = tries(place.report())
    assert "has the lowest of 2 sampled mean costs" in only["reason"]
    place.job(name="flat", num_pruning_rounds=0)
    (only,) = tries(place.report())
    assert "has not run yet" in only["reason"]


def nothing_was_changed(place: Place) -> bool:
    return not (place.folder / "zeus.db").exists() and not (place.folder / "logs").exists()


def test_a_wrong_job_file_is_refused_with_its_line_before_anything_is_changed(place: Place) -> None:
    place.job(defualt_batch_size=3)
    done = place.run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "job.toml, line 10: defualt_batch_size is not known. Did you mean 'default_batch_size'?" in done.stderr
    assert nothing_was_changed(place)


@pytest.mark.parametrize(
    ("values", "env", "said"),
    [
        ({"power_limits": [90]}, {}, "these GPUs accept 100 to 250 W"),
        ({"gpus": [1]}, {}, "there is no GPU 1"),
        ({"command": "pyhton train.py {batch_size}"}, {}, "'pyhton' is not found"),
        ({}, {"ZEUS_GPU": "auto"}, "without a GPU, set ZEUS_GPU=virtual:v100"),
        ({}, {"ZEUS_MODE": "fast"}, "give optimize, observe or off"),
        ({}, {"ZEUS_PROFILING": "wakl"}, "ZEUS_PROFILING='wakl': give walk or paper."),
    ],
    ids=["limit", "GPU", "command", "no GPU", "mode", "profiling"],
)
def test_what_is_not_here_is_asked_for_before_anything_is_changed(
    place: Place, values: dict[str, object], env: dict[str, str], said: str
) -> None:
    if "ZEUS_GPU" in env and shutil.which("nvidia-smi"):
        pytest.skip("this machine has a GPU")
    place.job(**values)
    done = place.run(**env)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert nothing_was_changed(place)


def test_a_script_that_says_nothing_of_what_is_looked_for_fails_with_what_was_looked_for(place: Place) -> None:
    place.job(metrics=r"regex = 'accuracy: (\S+)'")
    done = place.run()
    assert done.returncode == 1
    assert "no line of its output matches [metrics] regex = 'accuracy: (\\\\S+)'" in done.stderr
    assert "It ends with:\n  | acc=" in done.stderr and "\n  | acc=0.9\n" in done.stderr
    assert place.store().trial("toy", 1).trial.ending is Ending.LOST


def test_a_script_whose_epochs_are_found_but_never_a_metric_is_run_once(place: Place) -> None:
    """The expression is wrong. Other batch sizes would take as long and tell as little."""
    place.job(metrics="regex = 'accuracy: (\\S+)'\nepoch_regex = 'acc=(\\S+)'")
    done = place.run()
    assert done.returncode == 1
    looked = "no line of its output matches [metrics] regex = 'accuracy: (\\\\S+)'"
    assert f"2 epochs are over, but so far {looked}" in done.stderr
    assert f"the command succeeded, but {looked}. Its output is in" in done.stderr
    assert [one.trial.ending for one in place.store().trials("toy")] == [Ending.LOST]


def test_what_zeus_warns_of_is_said(place: Place) -> None:
    place.script(before="print('acc=nan')")
    assert "zeus: the metric 'nan' is ignored: it is not a finite number" in place.run().stderr


@pytest.mark.usefixtures("cold")
@pytest.mark.parametrize("stays", [True, False])
def test_on_a_terminal_that_may_go_away_the_running_trial_is_a_table(place: Place, stays: bool) -> None:
    wait = "" if stays else "while not pathlib.Path('gone').exists(): time.sleep(0.02)"
    place.script(before=wait)
    here, there = os.openpty()
    command, shown = [sys.executable, "-m", "zeus.cli", "run", "job.toml", "--json"], b""
    run = subprocess.Popen(command, env=place.env, cwd=place.folder, stdout=subprocess.PIPE, stderr=there, text=True)
    os.close(there)
    with contextlib.suppress(OSError):  # the other side has closed it
        while (new := os.read(here, 4096)) and (stays or b"pruning" not in shown + new):
            shown += new
    os.close(here)
    (place.folder / "gone").touch()
    report = json.loads(run.communicate(timeout=PATIENCE_SECONDS)[0])
    assert (run.returncode, report["recurrences"][0]["converged"]) == (0, True)
    assert not stays or all(word in shown for word in (b"phase", b"metric", b"cost", b"limit", b"reached the target"))


@pytest.mark.usefixtures("cold")
def test_nobody_left_to_tell_ends_no_training(place: Place) -> None:
    process = place.start("--recurrences", "2")
    assert process.stderr is not None and process.stdout is not None
    process.stderr.close()  # as with `2>&1 | head`
    process.stdout.close()
    process.wait(PATIENCE_SECONDS)
    assert [kept.trial.ending for kept in place.store().trials("toy")] == [Ending.CONVERGED] * 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here, the disk that is always full")
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_report_that_cannot_be_printed_is_one_line_and_the_run_stands(place: Place, flags: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            place.line("run", *flags),
            check=False,
            env=place.env,
            cwd=place.folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "zeus: the report could not be printed: No space left on device"
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert place.store().trial("toy", 1).trial.ending is Ending.CONVERGED


@pytest.mark.parametrize("way", ["flag", "file"])
def test_off_trains_the_default_as_without_zeus_and_teaches_the_default_alone(
    place: Place, limit: Callable[[], float], way: str
) -> None:
    place.job(batch_sizes=[8, 16, 32], power_limits=[150], **({"mode": "off"} if way == "file" else {}))
    flags = ["--off"] if way == "flag" else []
    report = place.report("--recurrences", "3", *flags)
    ran = [(one["batch_size"], one["phase"], one["power_limit"], one["cost_limit"]) for one in tries(report)]
    assert ran == [(16, "baseline", LIMIT, None)] * 3
    assert limit() == LIMIT
    assert json.loads(place.run("--dry-run", "--json", *flags).stdout)["phase"] == "baseline"
    place.job(batch_sizes=[8, 16, 32], power_limits=[150])
    (on,) = tries(place.report())
    assert (on["phase"], on["power_limit"]) == ("pruning", 150.0)  # Zeus goes on where it was


def test_off_runs_no_second_trial_where_the_default_misses(place: Place) -> None:
    place.job(target_metric=2.0)
    assert [one["batch_size"] for one in tries(place.report("--off", status=3, STEPS="4"))] == [16]


def test_a_typo_in_the_target_voids_nothing_unless_revise_says_so(place: Place) -> None:
    before = place.report()["default"]
    place.job(target_metric=7.5)
    done = place.run()
    assert done.returncode == 2
    assert "1 trial does not count any more" in done.stderr
    assert place.run("--revise", ZEUS_QUIET="1").returncode == 3  # nobody reaches it
    place.job()
    assert place.run().returncode == 2  # which voids those of the typo
    assert place.report("--revise")["default"]["runs"] == before["runs"] == 1
