"""`zeus profile`: it ends every script early, trains and records nothing, and what it finds is used afterwards."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.launch_place import Place, is_running, tries
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.job import Profiled
from zeus.policy.registry import find_policy
from zeus.profile import ProfileKey

pytestmark = pytest.mark.usefixtures("warm_frameworks")

V100, A40 = "Tesla V100-PCIE-32GB", "NVIDIA A40"
INSTANT = "virtual:v100?clock=virtual"
LIMIT = 250.0

LOADER = """
import sys, torch
from torch.utils.data import TensorDataset
from zeus.training.loader import ZeusDataLoader

train = ZeusDataLoader(TensorDataset(torch.zeros(48_000, 1)), 16, 6)
check = ZeusDataLoader(TensorDataset(torch.zeros(64, 1)), 16)
for epoch in train.epochs():
    for batch in train: pass
    for batch in check: pass
    train.report_metric(0.45 * (epoch + 1))
open("model", "a").write("trained\\n")
"""
HUGGING_FACE = """
import os, torch
from transformers import Trainer, TrainingArguments
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
from zeus.training.huggingface import BatchSizeCallback

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x=None, labels=None):
        return {"loss": (self.layer(x) - labels).pow(2).mean(), "logits": labels}

data = [{"x": torch.zeros(1), "labels": torch.zeros(1)}] * 20_000
how = dict(num_train_epochs=3, eval_strategy="epoch", save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True)
args = TrainingArguments("out", per_device_train_batch_size=int(os.environ["ZEUS_BATCH_SIZE"]), **how)
callbacks = [HFGlobalPowerLimitOptimizer(ZeusMonitor()), BatchSizeCallback("eval_loss")]
Trainer(Net(), args, train_dataset=data, eval_dataset=data[:64], callbacks=callbacks).train()
open("model", "a").write("trained\\n")
"""
LIGHTNING = """
import os, torch, lightning.pytorch as pl
from torch.utils.data import DataLoader, TensorDataset
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.training.lightning import BatchSizeCallback, EnergyCallback

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, index): return self.layer(batch[0]).pow(2).mean()
    def validation_step(self, batch, index): self.log("val_loss", self.layer(batch[0]).pow(2).mean())
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)

size = int(os.environ["ZEUS_BATCH_SIZE"])
train, check = (DataLoader(TensorDataset(torch.zeros(n, 1)), size) for n in (20_000, 64))
how = dict(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
callbacks = [EnergyCallback(optimizer=GlobalPowerLimitOptimizer), BatchSizeCallback("val_loss")]
pl.Trainer(max_epochs=3, callbacks=callbacks, **how).fit(Net(), train, check)
open("model", "a").write("trained\\n")
"""
RANKS = """
import torch, torch.distributed
from torch.utils.data import DistributedSampler, TensorDataset
from zeus import ZeusDataLoader

torch.distributed.init_process_group("gloo")
data = TensorDataset(torch.zeros(40_000, 1))
train = ZeusDataLoader(data, 16, 6, 0.9, sampler=DistributedSampler(data))
for epoch in train.epochs():
    for batch in train: pass
    train.report_metric(0.1)
open("model", "a").write("trained\\n")
"""
# The same without the weight of torch: the optimizers that users call themselves.
OWN = """
import os, pathlib, sys
from zeus.device.virtual import step
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer

pathlib.Path("pid").write_text(str(os.getpid()))
monitor = ZeusMonitor()
gpus, power, job = list(monitor.gpus.values()), GlobalPowerLimitOptimizer(monitor), BatchSizeOptimizer(monitor)
size = job.get_batch_size()
if size == 64: raise RuntimeError("CUDA out of memory")
if size == 8: raise RuntimeError("no such file")
job.steps_per_epoch = steps = int(os.environ.get("STEPS", "40000"))
power.on_train_begin(); job.on_train_begin()
for epoch in range(6):
    power.on_epoch_begin(); job.on_epoch_begin()
    for _ in range(steps):
        step(gpus, size)
        power.on_step_end(); job.on_step_end()
    power.on_epoch_end(); job.on_epoch_end()
    step(gpus, size)  # the evaluation
    job.on_evaluate(0.45 * (epoch + 1))
    if job.training_finished: break
power.on_train_end()
open("model", "a").write("trained\\n")
"""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    here = Place(tmp_path, gpu=INSTANT)
    (tmp_path / "train.py").write_text(OWN)
    here.job(metrics="")
    return here


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch, place: Place) -> Callable[[], float]:
    """Reads the power limit in force, as any process would."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def read() -> float:
        from zeus.device.find import find

        for name in ("ZEUS_GPU", "ZEUS_VIRTUAL_STATE"):
            monkeypatch.setenv(name, place.env[name])
        return next(iter(find().values())).limit()

    return read


def profile(place: Place, *arguments: str, status: int = 0, **env: str) -> dict[str, Any]:
    done = place.run("--json", *arguments, command="profile", **env)
    assert done.returncode == status, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def key(size: int, model: str = V100) -> ProfileKey:
    return ProfileKey("toy", size, model, 1)


def test_a_script_with_the_loader_is_profiled_and_its_next_run_profiles_nothing(place: Place, limit: Any) -> None:
    (place.folder / "train.py").write_text(LOADER)
    report = profile(place)
    store = place.store()
    assert (report["job"], report["gpu_model"], report["why_not"]) == ("toy", V100, None)
    assert (store.trials("toy"), store.count("toy"), limit()) == ([], 0, LIMIT)
    assert not (place.folder / "model").exists()  # what follows the training loop was not run
    for row in report["sizes"]:
        size, best, highest = row["batch_size"], row["best"], row["highest"]
        kept = store.get_profile(key(size))
        assert kept is not None and len(kept.slices) == len(row["limits"]) > 2
        assert (row["steps_per_epoch"], row["failure"], highest["limit_watts"]) == (48_000 // size, None, LIMIT)
        assert best["cost"] == min(one["cost"] for one in row["limits"]) <= highest["cost"]
        assert row["saving"]["joules"] == pytest.approx(highest["joules"] - best["joules"])
        assert row["profiling"]["seconds"] < best["seconds"] / 5  # far from an epoch
        assert row["epochs_to_target"] is None
    told = [one for one in store.notes("toy") if isinstance(one, Profiled)]
    assert [(one.batch_size, one.gpu_model, one.joules) for one in told] == [
        (row["batch_size"], V100, row["best"]["joules"]) for row in report["sizes"]
    ]
    assert report["epochs_unknown"] == [16, 32]

    (first,) = tries(place.report())
    assert list(first["limits"]) == [f"{report['sizes'][0]['best']['limit_watts']:g}"]  # no other limit was tried
    assert first["recurrence"] == 1 and limit() == LIMIT


def test_a_job_may_profile_first_and_start_with_another_size_than_its_default(place: Place, limit: Any) -> None:
    (place.folder / "train.py").write_text(LOADER)
    place.job(metrics="", policy="structured", start="profiled", batch_sizes=[8, 16], default_batch_size=8)
    planned = place.report("--dry-run")
    assert (planned["profiles_first"], planned["batch_size"]) == ([8, 16], 8)
    done = place.run("--json")
    (first,) = tries(json.loads(done.stdout))
    assert done.stderr.count("before the first run") == 2
    assert first["batch_size"] == 16 and first["reason"].startswith("16 comes first: by its profile, it is expected")
    told = [one for one in place.store().notes("toy") if isinstance(one, Profiled)]
    assert [one.batch_size for one in told][:2] == [8, 16]
    trial = place.store().trials("toy")[0].trial
    assert trial.outcome is not None and trial.outcome.joules is not None and limit() == LIMIT
    training = sum(one.joules or 0.0 for one in trial.outcome.stretches)
    assert 0.01 < trial.outcome.joules / training - 1 < 0.5  # profiling is charged to the first trial
    assert place.report("--dry-run")["profiles_first"] == []


@pytest.mark.parametrize(
    ("script", "command", "gpus"),
    [
        pytest.param(HUGGING_FACE, "python train.py", 1, marks=pytest.mark.peers, id="hugging face"),
        pytest.param(LIGHTNING, "python train.py", 1, marks=pytest.mark.peers, id="lightning"),
        pytest.param(RANKS, "torchrun --nproc-per-node 2 train.py", 2, id="two ranks"),
    ],
)
def test_other_trainings_that_show_their_steps_are_profiled_too(
    place: Place, script: str, command: str, gpus: int
) -> None:
    place.env["ZEUS_GPU"] = f"virtual:v100x{gpus}?clock=virtual"
    (place.folder / "train.py").write_text(script)
    place.job(metrics="", command=command, batch_sizes=[16], default_batch_size=16)
    (row,) = profile(place)["sizes"]
    steps = 20_000 // (16 // gpus)  # each rank has its part of the batch, and here all of the data
    assert (row["failure"], row["limits_compared"], row["steps_per_epoch"]) == (None, True, steps)
    assert place.store().get_profile(ProfileKey("toy", 16, V100, gpus)) is not None
    assert place.store().count("toy") == 0 and not (place.folder / "model").exists()


def test_runs_on_another_model_are_translated_as_soon_as_the_new_one_is_profiled(place: Place) -> None:
    place.report("--recurrences", "3", STEPS="400")
    place.env |= {"ZEUS_GPU": "virtual:a40?clock=virtual", "ZEUS_VIRTUAL_STATE": str(place.folder / "other cards")}

    def believed() -> list[int]:
        store = place.store()
        job, policy = store.job("toy"), find_policy("paper")
        state = policy.start(job.spec)
        for event in store.log("toy").events:
            state = policy.observe(state, event)
        return [size for size in (16, 32) if state.costs(size, A40).count]

    assert believed() == []
    report = profile(place, STEPS="400")
    assert report["gpu_model"] == A40 and place.store().get_profile(key(16, A40)) is not None
    assert believed() == [16, 32]
    assert [row["epochs_to_target"] for row in report["sizes"]] == [2, 2] and report["epochs_unknown"] == []
    assert place.store().count("toy") == 3  # the trials on the V100, and no other


def test_a_short_epoch_is_finished_so_that_its_evaluation_counts(place: Place) -> None:
    (row,) = profile(place, "--batch-sizes", "16", STEPS="150")["sizes"]
    assert row["evaluation_included"] and row["limits_compared"] and row["steps_per_epoch"] == 150
    assert profile(place, "--batch-sizes", "16")["sizes"][0]["evaluation_included"] is False


def test_the_limits_of_the_job_file_are_tried_even_if_every_run_measures_the_default(place: Place) -> None:
    place.job(metrics="", power_limits=[250, 150], more="[baseline]\nevery = 1")
    for row in profile(place)["sizes"]:
        assert [one["limit_watts"] for one in row["limits"]] == [250, 150] and row["limits_compared"]


def test_sizes_that_crash_are_told_and_the_others_go_on(place: Place) -> None:
    place.job(metrics="", batch_sizes=[8, 16, 64])
    report = profile(place, status=1)
    small, middle, large = report["sizes"]
    assert "failed with exit code 1: RuntimeError: no such file" in small["failure"]
    assert "does not fit in memory" in large["failure"] and large["best"] is None
    assert middle["failure"] is None and place.store().get_profile(key(16)) is not None
    text = place.run(command="profile")
    assert text.returncode == 1 and "batch size 64 could not be profiled: it does not fit in memory" in text.stderr
    assert "Not known: how many epochs" in text.stdout


@pytest.mark.parametrize("env", [{"ZEUS_READ_ONLY": "1"}, {"ZEUS_MODE": "off"}], ids=["read-only", "off"])
def test_who_may_not_set_limits_profiles_the_one_found(place: Place, limit: Any, env: dict[str, str]) -> None:
    done = place.run("--json", "--batch-sizes", "32", command="profile", **env)
    assert done.returncode == 0 and "only the" in done.stderr
    report = json.loads(done.stdout)
    (row,) = report["sizes"]
    assert [one["limit_watts"] for one in row["limits"]] == [LIMIT] and row["saving"] is None
    assert "limit" in report["why_not"] and row["steps_per_epoch"] == 40_000 and row["highest"]["joules"] > 0
    assert place.store().get_profile(key(32)) is None and limit() == LIMIT
    assert [one.batch_size for one in place.store().notes("toy")] == [32]


def test_an_unmodified_script_shows_one_epoch_and_no_limits(place: Place, limit: Any) -> None:
    place.env["ZEUS_GPU"] = "virtual:v100?speed=40&watched=idle"
    place.script(after="open('model', 'a').write('trained')")
    place.job()
    done = place.run("--json", command="profile")
    assert done.returncode == 0 and "its steps cannot be seen" in done.stderr
    report = json.loads(done.stdout)
    for row in report["sizes"]:
        assert [one["limit_watts"] for one in row["limits"]] == [LIMIT] and row["saving"] is None
        assert row["highest"]["joules_error"] is None and row["evaluation_included"]
    store = place.store()
    assert store.count("toy") == 0 and store.profiles("toy") == {} and limit() == LIMIT
    assert [one.batch_size for one in store.notes("toy")] == [16, 32]
    assert not (place.folder / "model").exists()


@pytest.mark.parametrize(("by", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)], ids=["kill -9", "Ctrl-C"])
def test_a_profile_that_is_ended_takes_its_script_along_and_the_limit_is_restored(
    place: Place, limit: Any, by: signal.Signals, status: int
) -> None:
    place.env["ZEUS_GPU"] = "virtual:v100?watched=idle"
    process = place.start("--batch-sizes", "16", command="profile")
    pid = place.pid()
    eventually(lambda: limit() < LIMIT)
    process.send_signal(by)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == status
    eventually(lambda: not is_running(pid))
    eventually(lambda: limit() == LIMIT)
    assert place.store().count("toy") == 0 and place.store().profiles("toy") == {}


def test_a_script_that_shows_no_steps_is_ended_in_time_and_told(place: Place) -> None:
    (place.folder / "train.py").write_text("import time\nwhile True: time.sleep(0.1)\n")
    (row,) = profile(place, "--batch-sizes", "16", "--max-seconds", "1", status=1)["sizes"]
    assert "not enough steps ended within 1 s" in row["failure"]
    (place.folder / "train.py").write_text("")
    (row,) = profile(place, "--batch-sizes", "16", status=1)["sizes"]
    assert "the command reported no steps" in row["failure"]
    assert profile_error(place, "--batch-sizes", "7") == "--batch-sizes 7: give some of the job's batch sizes [16, 32]."


def profile_error(place: Place, *arguments: str) -> str:
    done = place.run(*arguments, command="profile")
    assert done.returncode == 2 and done.stdout == ""
    return done.stderr.strip().removeprefix("zeus: ").removeprefix("Error: ")
