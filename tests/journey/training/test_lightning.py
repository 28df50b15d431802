"""A real Lightning Trainer on a virtual GPU: the best limit, energy in its own logs, the limit put back."""

from __future__ import annotations

import csv
import functools
import importlib.util
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("lightning") is None:
    pytest.skip("needs `pip install lightning`", allow_module_level=True)

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from support.cards import RESNET, VirtualCards
from support.last_line import saved_joules
from support.launched import Launch
from zeus.device.virtual import VirtualGpu
from zeus.job import Ending, JobSpec, Kind, replace
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.store import MemoryStore, Store
from zeus.training.lightning import BatchSizeCallback, EnergyCallback

pytestmark = [
    pytest.mark.usefixtures("warm"),
    pytest.mark.filterwarnings("ignore:The .* does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated"),
]


@pytest.fixture
def card(virtual_cards: VirtualCards) -> VirtualGpu:
    torch.set_num_threads(1)
    return virtual_cards(RESNET)[0]


class Model(LightningModule):  # type: ignore[misc]
    """A line through random points."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.line(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("val_loss", torch.nn.functional.mse_loss(self.line(x), y))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Watch(Callback):  # type: ignore[misc]
    """The limit after each batch. It fails at the step `fail_at`."""

    def __init__(self, card: VirtualGpu, fail_at: int = -1) -> None:
        self.card = card
        self.fail_at = fail_at
        self.limits: list[float] = []

    def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
        self.limits.append(self.card.limit())
        if trainer.global_step == self.fail_at:
            raise RuntimeError("out of memory")


def data(size: int) -> DataLoader[Any]:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(size, 4, generator=random)
    return DataLoader(TensorDataset(x, x.sum(dim=1, keepdim=True)), batch_size=8)


def fit(
    tmp_path: Path,
    callbacks: list[Callback],
    size: int = 800,
    model: LightningModule | None = None,
    ckpt_path: Path | None = None,
    **options: Any,
) -> list[dict[str, float]]:
    """Train; the lines that the logger wrote."""
    logger = CSVLogger(tmp_path, name="log")
    defaults: dict[str, Any] = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "devices": 1,
        "logger": logger,
        "log_every_n_steps": 20,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "callbacks": callbacks,
    }
    Trainer(**(defaults | options)).fit(model or Model(), data(size), data(24), ckpt_path=ckpt_path)
    with (Path(logger.log_dir) / "metrics.csv").open() as lines:
        return [{name: float(text) for name, text in row.items() if text} for row in csv.DictReader(lines)]


def test_the_best_limit_is_found_and_kept_while_training_and_put_back_after(card: VirtualGpu, tmp_path: Path) -> None:
    power = EnergyCallback(optimizer=GlobalPowerLimitOptimizer)
    watch = Watch(card)
    fit(tmp_path, [power, watch])
    assert power.optimizer is not None
    assert power.optimizer.best_limit == watch.limits[-1] < 250
    assert len(set(watch.limits)) > 3
    assert card.limit() == 250
    assert not list((tmp_path / "keeper").glob("*.json"))  # what a keeper notes while it lends


def test_energy_is_in_the_trainers_own_logs(card: VirtualGpu, tmp_path: Path) -> None:
    energy = EnergyCallback()
    rows = [r for r in fit(tmp_path, [energy], max_epochs=1, num_sanity_val_steps=0) if "zeus/joules" in r]
    assert [row["step"] for row in rows] == [19, 39, 59, 79, 99]
    for row in rows:
        assert row["zeus/joules_per_step"] == pytest.approx(8 * row["zeus/joules_per_sample"])
        assert row["zeus/joules_per_step"] * (row["step"] + 1) == pytest.approx(row["zeus/joules"], rel=1e-5)
        assert 40 < row["zeus/watts"] <= 250
    assert energy.joules == pytest.approx(card.energy())
    assert energy.joules is not None
    assert energy.joules > rows[-1]["zeus/joules"]  # the validation after the last step


def test_one_last_line_says_the_limit_and_the_saving_and_so_does_the_log(
    card: VirtualGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = EnergyCallback(optimizer=GlobalPowerLimitOptimizer)
    callbacks = [energy, BatchSizeCallback("score", choose(MemoryStore()))]
    rows = fit(tmp_path, callbacks, model=Scored([0.1, 0.1, 0.2, 0.9]), max_epochs=4)
    assert energy.optimizer is not None
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("zeus:")]
    assert line.startswith("zeus: reached 0.9 after 3 epochs, ")
    assert f"; {energy.optimizer.best_limit:g} W in place of 250 W: saved " in line
    saved = [row for row in rows if "zeus/saved_joules" in row]
    assert saved and all(row["zeus/power_limit"] == energy.optimizer.best_limit for row in saved)
    assert saved[-1]["zeus/saved_joules"] == pytest.approx(saved_joules(line), rel=0.1)
    monkeypatch.setenv("ZEUS_QUIET", "1")
    fit(tmp_path, [EnergyCallback()], size=80)
    assert "zeus:" not in capsys.readouterr().err


def test_a_batch_that_only_accumulates_is_no_step_of_the_trial(card: VirtualGpu, tmp_path: Path) -> None:
    store = MemoryStore()
    optimizer = choose(store)
    fit(
        tmp_path,
        [BatchSizeCallback("score", optimizer)],
        size=96,
        model=Scored([0.1, 0.1, 0.9]),
        accumulate_grad_batches=5,
    )
    assert optimizer.steps_per_epoch == 3  # of 12 batches: the last step of an epoch has fewer
    outcome = store.trial("asr", 1).trial.outcome
    assert outcome is not None and outcome.ending is Ending.CONVERGED
    assert sum(one.count for one in outcome.stretches if one.kind is Kind.STEP) == 2 * 3


def test_the_sanity_check_is_no_part_of_the_training(card: VirtualGpu, tmp_path: Path) -> None:
    energy = EnergyCallback(optimizer=GlobalPowerLimitOptimizer(ZeusMonitor(), mode="off"))
    fit(tmp_path, [energy], size=80, max_epochs=1, num_sanity_val_steps=2)
    assert energy.joules is not None
    assert 0 < energy.joules < card.energy()


def test_accumulated_gradients_make_one_step_of_several_batches(card: VirtualGpu, tmp_path: Path) -> None:
    one = fit(tmp_path, [EnergyCallback()], size=320, max_epochs=1, log_every_n_steps=10)
    four = fit(tmp_path, [EnergyCallback()], size=320, max_epochs=1, log_every_n_steps=10, accumulate_grad_batches=4)
    of_one = next(row for row in one if "zeus/joules" in row)
    of_four = next(row for row in four if "zeus/joules" in row)
    assert of_four["zeus/joules_per_step"] == pytest.approx(4 * of_one["zeus/joules_per_step"])
    assert of_four["zeus/joules_per_sample"] == pytest.approx(of_one["zeus/joules_per_sample"])


def test_validation_in_the_middle_of_an_epoch_is_no_part_of_the_profile(card: VirtualGpu, tmp_path: Path) -> None:
    monitor = ZeusMonitor()
    mixed, plain = GlobalPowerLimitOptimizer(monitor), GlobalPowerLimitOptimizer(ZeusMonitor())
    fit(tmp_path, [EnergyCallback(optimizer=mixed)], max_epochs=3, val_check_interval=7)
    fit(tmp_path, [EnergyCallback(optimizer=plain)], max_epochs=3)
    assert mixed.profile is not None
    assert plain.profile is not None
    assert mixed.best_limit == plain.best_limit
    for one, other in zip(mixed.profile.slices, plain.profile.slices, strict=True):
        assert one.joules / one.steps == pytest.approx(other.joules / other.steps)
        assert one.seconds / one.steps == pytest.approx(other.seconds / other.steps)
    assert card.limit() == 250


def test_a_training_that_raises_puts_the_limit_back_at_once(card: VirtualGpu, tmp_path: Path) -> None:
    power = EnergyCallback(optimizer=functools.partial(GlobalPowerLimitOptimizer, wait_steps=0))
    watch = Watch(card, fail_at=30)
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(tmp_path, [power, watch])
    assert min(watch.limits) < 250
    assert card.limit() == 250
    assert power.optimizer is not None
    assert not power.optimizer.monitor._open


# ---------------------------------------------------------------------------------------------- the batch size


class Scored(Model):
    """Its metric goes as told, whatever it learns."""

    def __init__(self, schedule: list[float]) -> None:
        super().__init__()
        self.schedule = iter(schedule)

    def on_validation_epoch_end(self) -> None:
        self.log("score", next(self.schedule))


SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8,), default_batch_size=8, target_metric=0.8)


def choose(store: MemoryStore) -> BatchSizeOptimizer:
    return BatchSizeOptimizer(ZeusMonitor(), job=replace(SPEC, batch_sizes=(8, 16)), store=store)


def test_a_trainer_ends_at_the_target_or_where_it_costs_too_much_and_tells_its_job(
    card: VirtualGpu, tmp_path: Path
) -> None:
    store = MemoryStore()
    optimizer = choose(store)
    used = []
    for schedule in ([0.9, 0.5, 0.7, 0.9], [0.9] + [0.1] * 30):  # the first is the sanity check's
        optimizer.get_batch_size()
        before = card.energy()
        callbacks = [EnergyCallback(), BatchSizeCallback("score", optimizer)]
        fit(tmp_path, callbacks, size=80, model=Scored(schedule), max_epochs=30)
        used.append(card.energy() - before)
    first, second = (kept.trial for kept in store.trials("asr"))
    assert (first.ending, second.ending) == (Ending.CONVERGED, Ending.STOPPED)
    assert first.outcome is not None and second.outcome is not None
    assert (first.outcome.epochs, first.outcome.metric) == (3, pytest.approx(0.9))
    assert first.outcome.joules == pytest.approx(used[0], rel=0.1)  # each step counts once; the sanity check does not
    assert 3 < second.outcome.epochs < 30


def test_under_zeus_run_the_power_limit_is_found_by_the_jobs_own_terms_and_its_profile_is_the_jobs(
    card: VirtualGpu, tmp_path: Path, launched: Launch, launched_store: Store
) -> None:
    launched(replace(SPEC, batch_sizes=(8, 16), default_batch_size=16, power_limits=(250.0, 150.0)))
    callback = EnergyCallback(optimizer=GlobalPowerLimitOptimizer)
    fit(tmp_path, [callback], size=1600)
    ((key, profile),) = launched_store.profiles("asr").items()
    assert (key.batch_size, profile.limits) == (16, (250.0, 150.0))

    steps = functools.partial(GlobalPowerLimitOptimizer, power_limits=(200.0,), profile_path=tmp_path / "mine.json")
    for make, job_id, limits in ((GlobalPowerLimitOptimizer, "asr", (250.0, 150.0)), (steps, "", (200.0,))):
        again = EnergyCallback(optimizer=make)
        fit(tmp_path, [again], size=800)
        assert again.optimizer is not None and again.optimizer.profile is not None
        assert (again.optimizer.key.job, again.optimizer.profile.limits) == (job_id, limits)  # the partial's own


def test_a_trainer_that_raises_has_crashed(card: VirtualGpu, tmp_path: Path) -> None:
    store = MemoryStore()
    callback = BatchSizeCallback("score", choose(store))
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(tmp_path, [callback, Watch(card, fail_at=15)], size=80, model=Scored([0.1] * 9))
    trial = store.trial("asr", 1).trial
    assert (trial.ending, trial.outcome and trial.outcome.epochs) == (Ending.CRASHED, 1)


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_a_training_resumed_within_its_trial_goes_on_where_the_trial_was(
    card: VirtualGpu, tmp_path: Path, launched: Launch
) -> None:
    job = launched(SPEC)
    options: dict[str, Any] = {"max_epochs": 9, "num_sanity_val_steps": 0, "precision": "bf16-mixed"}
    saved = ModelCheckpoint(dirpath=tmp_path / "saved", save_last=True)
    with pytest.raises(RuntimeError, match="out of memory"):
        fit(
            tmp_path,
            [BatchSizeCallback("score"), saved, Watch(card, fail_at=25)],
            size=80,
            model=Scored([0.1, 0.2]),
            enable_checkpointing=True,
            **options,
        )
    reported = job.so_far(1)
    assert reported is not None and reported.epochs == 2 and reported.joules is not None
    fit(
        tmp_path,
        [BatchSizeCallback("score")],
        size=80,
        model=Scored([0.3, 0.9]),
        ckpt_path=tmp_path / "saved" / "last.ckpt",
        **options,
    )
    outcome = job.trial(1).outcome
    assert outcome is not None
    assert (outcome.ending, outcome.epochs) == (Ending.CONVERGED, 4)
    assert outcome.joules == pytest.approx(card.energy(), rel=0.01)  # also of the part that was not reported


def test_by_itself_the_callback_for_the_batch_size_does_nothing(card: VirtualGpu, tmp_path: Path) -> None:
    fit(tmp_path, [BatchSizeCallback("score")], size=80, model=Scored([0.9] * 3))
    assert card.energy() == 0
