"""A real Hugging Face Trainer on a virtual GPU: the best limit, energy in its own logs, the limit put back."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from support.paths import TESTS
from support.programs import python_env, run_python

if importlib.util.find_spec("transformers") is None or importlib.util.find_spec("accelerate") is None:
    pytest.skip("needs `pip install transformers accelerate`", allow_module_level=True)
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from support.cards import RESNET, VirtualCards
from support.keeper_place import is_dead
from support.last_line import saved_joules
from support.launched import Launch
from support.waiting import eventually
from zeus.device.virtual import VirtualGpu
from zeus.errors import InputError
from zeus.job import Ending, JobSpec, Kind
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.optimizer.power_limit import Energy, HFGlobalPowerLimitOptimizer, ZeusCost
from zeus.store import MemoryStore, Store
from zeus.training.huggingface import BatchSizeCallback, EnergyCallback, training_arguments

pytestmark = pytest.mark.usefixtures("warm_frameworks")


@pytest.fixture
def card(virtual_cards: VirtualCards) -> VirtualGpu:
    torch.set_num_threads(1)  # the model is tiny: more threads only wait for each other
    return virtual_cards(RESNET)[0]


class Data(torch.utils.data.Dataset[dict[str, Any]]):
    """Sentences of random words."""

    def __init__(self, size: int) -> None:
        random = torch.Generator().manual_seed(0)
        self.words = torch.randint(0, 20, (size, 4), generator=random)

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": self.words[index], "labels": int(self.words[index, 0] > 10)}


class Net(torch.nn.Module):
    """As small as a model can be: what is tested is what happens around its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(20, 2)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.words(input_ids).mean(1)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Watch(TrainerCallback):  # type: ignore[misc]
    """Looks on: the limit after each step, what profiling had learnt, and what a reporter gets to see."""

    def __init__(self, card: VirtualGpu, *monitors: ZeusMonitor) -> None:
        self.card = card
        self.monitors = monitors
        self.limits: list[float] = []
        self.logs: list[dict[str, float]] = []
        self.windows: set[int] = set()  # how many were open, over all monitors
        self.keepers: set[int] = set()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.limits.append(self.card.limit())
        self.windows.add(sum(len(monitor._open) for monitor in self.monitors))
        for note in Path(os.environ["ZEUS_KEEPER_STATE"]).glob("*.json"):
            self.keepers.add(json.loads(note.read_text())["pid"])

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **kwargs: Any) -> None:
        self.logs.append(dict(logs))


class Fails(TrainerCallback):  # type: ignore[misc]
    """Raises in the middle of the training."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 30:
            raise RuntimeError("out of memory")


def trainer(tmp_path: Path, callbacks: list[TrainerCallback], size: int = 800, **options: Any) -> Trainer:
    defaults: dict[str, Any] = {
        "output_dir": str(tmp_path / "out"),
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "num_train_epochs": 2,
        "logging_steps": 20,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "dataloader_pin_memory": False,
    }
    return Trainer(
        Net(),
        TrainingArguments(**(defaults | options)),
        train_dataset=Data(size),
        eval_dataset=Data(24),
        callbacks=callbacks,
    )


def test_the_best_limit_is_found_and_kept_while_training_and_put_back_after(card: VirtualGpu, tmp_path: Path) -> None:
    power = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    watch = Watch(card)
    trainer(tmp_path, [power, watch]).train()
    assert power.best_limit == watch.limits[-1] < 250
    assert len(set(watch.limits)) > 3
    assert card.limit() == 250
    assert watch.keepers
    for keeper in watch.keepers:
        eventually(functools.partial(is_dead, keeper))


def test_energy_is_in_the_trainers_history_and_in_what_reporters_see(card: VirtualGpu, tmp_path: Path) -> None:
    monitor = ZeusMonitor()
    reporter, energy = Watch(card), EnergyCallback(monitor)
    trained = trainer(tmp_path, [reporter, energy], num_train_epochs=1)
    with monitor.window("all") as all_of_it:
        trained.train()
    rows = [row for row in trained.state.log_history if "loss" in row]
    keys = ("zeus/joules_per_step", "zeus/joules_per_sample", "zeus/watts", "zeus/joules")
    assert len(rows) == 5
    for row in rows:
        assert row["zeus/joules_per_step"] == pytest.approx(8 * row["zeus/joules_per_sample"])
        assert row["zeus/joules_per_step"] * row["step"] == pytest.approx(row["zeus/joules"])
        assert 40 < row["zeus/watts"] <= 250
    assert [[row[k] for k in keys] for row in rows] == [
        [log[k] for k in keys] for log in reporter.logs if "loss" in log
    ]
    assert energy.joules == pytest.approx(all_of_it.joules) == pytest.approx(card.energy())


@pytest.mark.parametrize("order", [1, -1])
def test_one_last_line_says_the_limit_and_the_saving_and_so_does_the_log(
    card: VirtualGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str], order: int
) -> None:
    store = MemoryStore()
    sizes = BatchSizeOptimizer(ZeusMonitor(), job=spec(batch_sizes=(8,), default_batch_size=8), store=store)
    power, energy = HFGlobalPowerLimitOptimizer(ZeusMonitor()), EnergyCallback()
    reporter = Watch(card, sizes.monitor, power.monitor, energy.monitor)
    callbacks = [reporter, power, energy, BatchSizeCallback("eval_accuracy", sizes)][::order]
    trained = trainer(tmp_path, callbacks, num_train_epochs=4, eval_strategy="epoch")
    trained.compute_metrics = accuracy([0.1, 0.2, 0.9])
    trained.train()
    assert reporter.windows == {1}
    outcome = store.trial("asr", 1).trial.outcome
    assert outcome is not None
    counted = {kind: sum(one.count for one in outcome.stretches if one.kind is kind) for kind in Kind}
    assert (counted[Kind.EVALUATION], counted[Kind.STEP]) == (3, 299)  # the first step loads libraries
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("zeus:")]
    assert line.startswith("zeus: reached 0.9 after 3 epochs, ")
    assert f"; {power.best_limit:g} W in place of 250 W: saved " in line and " ± " in line
    rows = [row for row in trained.state.log_history if "zeus/saved_joules" in row]
    assert rows and all(row["zeus/power_limit"] == power.best_limit for row in rows)
    assert rows[-1] == next(row for row in reversed(trained.state.log_history) if "loss" in row or "train_loss" in row)
    assert rows[-1]["zeus/saved_joules"] in [log.get("zeus/saved_joules") for log in reporter.logs]
    told = saved_joules(line)
    assert rows[-1]["zeus/saved_joules"] == pytest.approx(told, rel=0.05)
    assert rows[-1]["zeus/saved_joules_error"] >= 0


def test_what_is_said_to_be_saved_is_what_the_same_training_uses_more_without(
    card: VirtualGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    used = []
    for mode in ("off", "optimize"):
        before = card.energy()
        trainer(tmp_path, [HFGlobalPowerLimitOptimizer(ZeusMonitor(), mode=mode)], num_train_epochs=4).train()
        used.append(card.energy() - before)
    without, line = [one for one in capsys.readouterr().err.splitlines() if one.startswith("zeus:")]
    assert without.startswith("zeus: ended after 4 epochs, ") and "saved" not in without
    assert saved_joules(line) == pytest.approx(used[0] - used[1], rel=0.05)


def test_energy_alone_is_said_too_and_quiet_means_quiet(
    card: VirtualGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    energy = EnergyCallback()
    trained = trainer(tmp_path, [energy], size=80, num_train_epochs=1)
    trained.train()
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("zeus:")]
    assert line.startswith("zeus: ended after 1 epoch, ") and line.endswith(f" {energy.joules:.0f} J")
    assert not any("zeus/power_limit" in row or "zeus/saved_joules" in row for row in trained.state.log_history)
    monkeypatch.setenv("ZEUS_QUIET", "1")
    trainer(tmp_path, [EnergyCallback(), HFGlobalPowerLimitOptimizer(ZeusMonitor())], size=80).train()
    assert "zeus:" not in capsys.readouterr().err


def test_the_last_line_of_a_resumed_training_counts_the_epochs_that_were_trained_now(
    card: VirtualGpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer(tmp_path, [], size=80, num_train_epochs=1, save_strategy="epoch").train()
    again = trainer(tmp_path, [EnergyCallback()], size=80, num_train_epochs=3)
    again.train(resume_from_checkpoint=True)
    trainer(tmp_path, [EnergyCallback()], size=80, max_steps=5).train()
    lines = [one for one in capsys.readouterr().err.splitlines() if one.startswith("zeus:")]
    assert [line.partition(",")[0] for line in lines] == ["zeus: ended after 2 epochs", "zeus: ended after 1 epoch"]


def test_both_callbacks_together_report_each_batch_once(card: VirtualGpu, tmp_path: Path) -> None:
    power, energy = HFGlobalPowerLimitOptimizer(ZeusMonitor(), mode="off"), EnergyCallback()
    trainer(tmp_path, [power, energy], size=80, num_train_epochs=1).train()
    both = card.clock.now()
    trainer(tmp_path, [HFGlobalPowerLimitOptimizer(ZeusMonitor(), mode="off")], size=80, num_train_epochs=1).train()
    assert card.clock.now() == pytest.approx(2 * both)
    assert energy.joules is not None
    assert card.energy() == pytest.approx(2 * energy.joules)


def test_accumulated_gradients_make_one_step_of_several_batches(card: VirtualGpu, tmp_path: Path) -> None:
    energy = EnergyCallback()
    plain = trainer(tmp_path, [energy], size=96, num_train_epochs=1, logging_steps=12)
    plain.train()
    of_one = next(row for row in plain.state.log_history if "loss" in row)
    folded = trainer(
        tmp_path, [EnergyCallback()], size=96, num_train_epochs=1, logging_steps=3, gradient_accumulation_steps=4
    )
    folded.train()
    of_four = next(row for row in folded.state.log_history if "loss" in row)
    assert of_four["zeus/joules_per_step"] == pytest.approx(4 * of_one["zeus/joules_per_step"])
    assert of_four["zeus/joules_per_sample"] == pytest.approx(of_one["zeus/joules_per_sample"])


def test_evaluation_in_the_middle_of_an_epoch_is_no_part_of_the_profile(card: VirtualGpu, tmp_path: Path) -> None:
    power = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    mixed = trainer(
        tmp_path,
        [power],
        num_train_epochs=3,
        eval_strategy="steps",
        eval_steps=7,
        per_device_eval_batch_size=24,
        save_strategy="steps",
        save_steps=100,
    )
    mixed.train()
    assert power.profile is not None
    plain = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    trainer(tmp_path, [plain], num_train_epochs=3).train()
    assert plain.profile is not None
    assert power.best_limit == plain.best_limit
    for one, other in zip(power.profile.slices, plain.profile.slices, strict=True):
        assert one.joules / one.steps == pytest.approx(other.joules / other.steps)
        assert one.seconds / one.steps == pytest.approx(other.seconds / other.steps)
    assert card.limit() == 250


def test_a_training_that_raises_puts_the_limit_back_at_the_end_of_the_block(card: VirtualGpu, tmp_path: Path) -> None:
    power = HFGlobalPowerLimitOptimizer(ZeusMonitor(), wait_steps=0)
    watch = Watch(card)
    with pytest.raises(RuntimeError, match="out of memory"), power:
        trainer(tmp_path, [power, watch, Fails()]).train()
    assert min(watch.limits) < 250
    assert card.limit() == 250


def test_a_training_that_raises_puts_the_limit_back_soon_also_without_a_block(card: VirtualGpu, tmp_path: Path) -> None:
    power = HFGlobalPowerLimitOptimizer(ZeusMonitor(), wait_steps=0)
    watch = Watch(card)
    trained = trainer(tmp_path, [power, watch, Fails()])
    with pytest.raises(RuntimeError, match="out of memory"):
        trained.train()
    assert min(watch.limits) < 250
    eventually(lambda: card.limit() == 250)


def test_an_optimizer_made_right_after_a_training_raised_finds_the_limit_that_was_there(
    card: VirtualGpu, tmp_path: Path
) -> None:
    power = HFGlobalPowerLimitOptimizer(ZeusMonitor(), wait_steps=0)
    failed = trainer(tmp_path, [power, Fails()])
    with pytest.raises(RuntimeError, match="out of memory"):
        failed.train()
    again = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    assert again.optimizer.found_limit == card.limit() == 250
    trainer(tmp_path, [again]).train()
    assert again.best_limit is not None and again.why_not is None


def test_a_training_after_one_that_raised_goes_on_profiling(card: VirtualGpu, tmp_path: Path) -> None:
    power = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer(tmp_path, [power, Fails()]).train()
    trainer(tmp_path, [power]).train()
    assert power.best_limit is not None
    assert card.limit() == 250


def test_a_training_that_goes_on_with_a_smaller_batch_is_profiled_anew(card: VirtualGpu, tmp_path: Path) -> None:
    class RunsOutOfMemory(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 40 and state.train_batch_size == 8:
                raise RuntimeError("CUDA out of memory.")

    power = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    trainer(tmp_path, [power, RunsOutOfMemory()], num_train_epochs=4, auto_find_batch_size=True).train()
    plain = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    smaller = trainer(tmp_path, [plain], num_train_epochs=4, per_device_train_batch_size=7)
    smaller.train()
    assert power.profile is not None and plain.profile is not None
    assert power.best_limit == plain.best_limit
    for one, other in zip(power.profile.slices, plain.profile.slices, strict=True):
        assert one.joules / one.steps == pytest.approx(other.joules / other.steps)


def test_a_script_that_dies_of_an_exception_leaves_the_limit_as_it_was(card: VirtualGpu, tmp_path: Path) -> None:
    script = f"""
import importlib.util, sys
from pathlib import Path
sys.path.insert(0, {str(TESTS)!r})
spec = importlib.util.spec_from_file_location("journey", {str(Path(__file__))!r})
journey = importlib.util.module_from_spec(spec)
spec.loader.exec_module(journey)
power = journey.HFGlobalPowerLimitOptimizer(journey.ZeusMonitor(), wait_steps=0)
watch = journey.Watch(power.monitor.gpus[0])
try:
    journey.trainer(Path({str(tmp_path)!r}), [power, watch, journey.Fails()]).train()
finally:
    print(min(watch.limits))
"""
    done = run_python("-c", script, env=python_env(OMP_NUM_THREADS="1"), code=1)
    assert "out of memory" in done.stderr
    assert float(done.stdout.split()[-1]) < 250
    assert card.limit() == 250


def test_wrong_arguments_are_refused_at_once(card: VirtualGpu) -> None:
    with pytest.raises(TypeError, match="wait_step"):
        HFGlobalPowerLimitOptimizer(ZeusMonitor(), wait_step=3)
    with pytest.raises(ValueError, match="pl_step"):
        HFGlobalPowerLimitOptimizer(ZeusMonitor(), pl_step=0)


# ---------------------------------------------------------------------------------------------- the batch size


def accuracy(schedule: list[float]) -> Any:
    """A metric that goes as told, whatever the model."""
    values = iter(schedule)
    return lambda _: {"accuracy": next(values)}


def spec(**knobs: Any) -> JobSpec:
    sizes = {"batch_sizes": (8, 16), "default_batch_size": 16, "target_metric": 0.8}
    return JobSpec(job_id="asr", job_id_prefix="asr", **(sizes | knobs))


def test_a_trainer_ends_at_the_target_and_tells_its_job(card: VirtualGpu, tmp_path: Path) -> None:
    store = MemoryStore()
    optimizer = BatchSizeOptimizer(ZeusMonitor(), job=spec(), store=store)
    options = {"per_device_train_batch_size": optimizer.get_batch_size(), "num_train_epochs": 9}
    energy = EnergyCallback()
    trained = trainer(
        tmp_path, [BatchSizeCallback("eval_accuracy", optimizer), energy], 160, eval_strategy="epoch", **options
    )
    trained.compute_metrics = accuracy([0.5, 0.7, 0.9])
    trained.train()
    assert trained.state.epoch == 3
    outcome = store.trial("asr", 1).trial.outcome
    assert outcome is not None
    assert (outcome.ending, outcome.epochs, outcome.metric) == (Ending.CONVERGED, 3, 0.9)
    assert outcome.joules == pytest.approx(card.energy(), rel=0.01)  # each step counts once, of two callbacks
    trained.compute_metrics = accuracy([0.1])
    trained.evaluate()  # of a training that is over
    assert store.trial("asr", 1).trial.outcome == outcome


def test_a_trainer_is_stopped_where_it_costs_too_much_also_if_it_evaluates_at_will(
    card: VirtualGpu, tmp_path: Path
) -> None:
    store = MemoryStore()
    optimizer = BatchSizeOptimizer(ZeusMonitor(), job=spec(), store=store)
    for schedule in ([0.1, 0.9], [0.1] * 99):
        options = {"per_device_train_batch_size": optimizer.get_batch_size(), "num_train_epochs": 20}
        trained = trainer(
            tmp_path,
            [BatchSizeCallback("eval_accuracy", optimizer)],
            160,
            eval_strategy="steps",
            eval_steps=7,
            eval_on_start=True,
            **options,
        )
        trained.compute_metrics = accuracy([0.0, *schedule])
        trained.train()
    stopped = store.trial("asr", 2).trial
    assert stopped.outcome is not None
    assert stopped.ending is Ending.STOPPED
    assert 0 < stopped.outcome.epochs < 20


def test_under_zeus_run_a_trainer_gets_its_part_of_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"output_dir": str(tmp_path), "per_device_train_batch_size": 7, "use_cpu": True, "report_to": "none"}
    assert training_arguments(**given).per_device_train_batch_size == 7
    monkeypatch.setenv("ZEUS_BATCH_SIZE", "64")
    with pytest.raises(InputError, match="ZEUS_BATCH_SIZE=64 is for all GPUs of the job"):
        training_arguments(**given)
    monkeypatch.setenv("ZEUS_PER_DEVICE_BATCH_SIZE", "8")
    monkeypatch.setenv("ZEUS_ACCUMULATION_STEPS", "4")
    made = training_arguments(TrainingArguments, **given)
    assert (made.per_device_train_batch_size, made.gradient_accumulation_steps) == (8, 4)


# ---------------------------------------------------------------------------------------------- trainings of today


OF_ONE_SIZE = spec(batch_sizes=(8,), default_batch_size=8)


class FailsAfter(TrainerCallback):  # type: ignore[misc]
    """Raises when an epoch and its checkpoint are done."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.epoch > self.epochs:
            raise RuntimeError("the node went away")


def test_a_training_resumed_within_its_trial_goes_on_where_the_trial_was(
    card: VirtualGpu, tmp_path: Path, launched: Launch
) -> None:
    job = launched(OF_ONE_SIZE)
    options: dict[str, Any] = {"num_train_epochs": 9, "eval_strategy": "epoch", "save_strategy": "epoch"}
    first = trainer(tmp_path, [BatchSizeCallback("eval_accuracy"), FailsAfter(2)], 80, **options)
    first.compute_metrics = accuracy([0.1, 0.2])
    with pytest.raises(RuntimeError, match="went away"):
        first.train()
    reported = job.so_far(1)
    assert reported is not None and reported.epochs == 2 and reported.joules is not None
    again = trainer(tmp_path, [BatchSizeCallback("eval_accuracy")], 80, **options)
    again.compute_metrics = accuracy([0.3, 0.9])
    again.train(resume_from_checkpoint=True)
    outcome = job.trial(1).outcome
    assert outcome is not None
    assert (outcome.ending, outcome.epochs, outcome.metric) == (Ending.CONVERGED, 4, 0.9)
    assert outcome.joules == pytest.approx(card.energy(), rel=0.01)  # also of the part that was not reported
    assert [point.number for point in outcome.curve] == [3, 4]


def test_a_training_resumed_from_the_checkpoint_of_another_trial_has_an_unknown_energy(
    card: VirtualGpu, tmp_path: Path, launched: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"eval_strategy": "epoch", "save_strategy": "epoch"}
    earlier = trainer(tmp_path, [], 80, **options)
    earlier.train()
    job = launched(OF_ONE_SIZE)
    again = trainer(tmp_path, [BatchSizeCallback("eval_accuracy")], 80, num_train_epochs=9, **options)
    again.compute_metrics = accuracy([0.9])
    again.train(resume_from_checkpoint=True)
    outcome = job.trial(1).outcome
    assert outcome is not None
    assert (outcome.ending, outcome.epochs, outcome.joules) == (Ending.CONVERGED, 3, None)
    assert "goes on after epoch 2 of another trial" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"bf16": True},
        {"gradient_accumulation_steps": 4},
        {"eval_strategy": "steps", "eval_steps": 5},
        {"torch_compile": True, "torch_compile_backend": "aot_eager"},
        pytest.param(  # by inductor, which needs a C++ compiler, and which warns of what torch itself uses
            {"torch_compile": True}, marks=[pytest.mark.peers, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
        ),
        {"max_steps": 20},
    ],
    ids=["bf16", "accumulated", "evaluated by steps", "traced", "compiled", "a number of steps"],
)
def test_a_fine_tune_of_one_epoch_is_measured_limited_and_reported(
    card: VirtualGpu,
    tmp_path: Path,
    launched: Launch,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, Any],
) -> None:
    job = launched(OF_ONE_SIZE)
    power, energy = HFGlobalPowerLimitOptimizer(ZeusMonitor()), EnergyCallback()
    callbacks = [power, energy, BatchSizeCallback("eval_accuracy")]
    trained = trainer(tmp_path, callbacks, 1600, **({"num_train_epochs": 1, "eval_strategy": "epoch"} | options))
    trained.compute_metrics = accuracy([0.9] if "eval_steps" not in options else [0.1] * 30 + [0.9] * 99)
    trained.train()
    outcome = job.trial(1).outcome
    assert outcome is not None and outcome.ending is Ending.CONVERGED and outcome.epochs == 1
    steps = options.get("max_steps", 200 // options.get("gradient_accumulation_steps", 1))
    assert trained.state.global_step == (155 if "eval_steps" in options else steps)
    assert energy.joules == pytest.approx(card.energy(), rel=1e-6) == pytest.approx(outcome.joules, rel=0.02)
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("zeus:")]
    assert line.startswith("zeus: reached 0.9 after 1 epoch, ")
    if power.best_limit is not None:  # there were steps enough
        assert f"{power.best_limit:g} W" in line
    assert card.limit() == 250


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore:Cannot ")  # from dill, which `datasets` pickles with
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing. is deprecated:FutureWarning")  # TRL still sets it
def test_trls_trainer_for_fine_tuning_takes_the_same_callbacks_and_arguments(
    card: VirtualGpu,
    tmp_path: Path,
    launched: Launch,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trl = pytest.importorskip("trl", reason="needs `pip install trl`, of 270 MB with what it needs")
    datasets = pytest.importorskip("datasets")
    from tokenizers import Tokenizer, models
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    job = launched(OF_ONE_SIZE)
    monkeypatch.setenv("ZEUS_PER_DEVICE_BATCH_SIZE", "4")
    monkeypatch.setenv("ZEUS_ACCUMULATION_STEPS", "2")
    words = Tokenizer(models.WordLevel({str(n): n for n in range(20)}, unk_token="0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="0", eos_token="1", unk_token="0")
    config = LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    rows = [[index % 18 + 2] * 4 for index in range(800)]
    data, few = (
        datasets.Dataset(datasets.table.InMemoryTable.from_pydict({"input_ids": some}), fingerprint=str(len(some)))
        for some in (rows, rows[:8])
    )
    args = training_arguments(
        trl.SFTConfig,
        output_dir=str(tmp_path / "out"),
        num_train_epochs=1,
        per_device_train_batch_size=99,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        eval_strategy="epoch",
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    power = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    tuned = trl.SFTTrainer(
        LlamaForCausalLM(config),
        args,
        train_dataset=data,
        eval_dataset=few,
        processing_class=tokenizer,
        callbacks=[power, EnergyCallback(), BatchSizeCallback("eval_loss")],
    )
    tuned.train()
    assert tuned.state.global_step == 100
    outcome = job.trial(1).outcome
    assert outcome is not None and outcome.epochs == 1 and outcome.micro_batch_size == 4
    assert outcome.joules == pytest.approx(card.energy(), rel=0.01)
    assert f"{power.best_limit:g} W in place of 250 W" in capsys.readouterr().err
    assert card.limit() == 250


LAUNCHED = """
import sys
from pathlib import Path
sys.path[:0] = [TESTS, JOURNEY]
from test_huggingface import EnergyCallback, HFGlobalPowerLimitOptimizer, ZeusMonitor, trainer
power, energy = HFGlobalPowerLimitOptimizer(ZeusMonitor()), EnergyCallback()
trainer(Path("."), [power, energy], size=1600, num_train_epochs=1).train()
print("best", power.best_limit, energy.joules)
"""


@pytest.mark.peers
def test_accelerate_launch_needs_no_change(card: VirtualGpu, tmp_path: Path) -> None:
    names = {"TESTS": str(TESTS), "JOURNEY": str(Path(__file__).parent)}
    text = LAUNCHED
    for name, value in names.items():
        text = text.replace(name, repr(value))
    (tmp_path / "train.py").write_text(text)
    command = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "train.py"]
    done = run_python(*command, cwd=tmp_path, env=python_env(OMP_NUM_THREADS="1"))
    _, best, joules = next(line for line in done.stdout.splitlines() if line.startswith("best")).split()
    assert float(best) < 250
    assert float(joules) == pytest.approx(card.energy())
    assert sum(line.startswith("zeus: ended after 1 epoch") for line in done.stderr.splitlines()) == 1
    assert card.limit() == 250


def test_under_zeus_run_the_callback_finds_its_trial_and_without_it_does_nothing(
    card: VirtualGpu, tmp_path: Path, launched: Launch
) -> None:
    trained = trainer(tmp_path, [BatchSizeCallback("eval_accuracy")], 80, eval_strategy="epoch")
    trained.compute_metrics = accuracy([0.9, 0.9])
    trained.train()
    assert trained.state.epoch == 2

    job = launched(spec())
    trained = trainer(tmp_path, [BatchSizeCallback("eval_accuracy")], 80, eval_strategy="epoch")
    trained.compute_metrics = accuracy([0.9, 0.9])
    trained.train()
    assert trained.state.epoch == 1
    assert job.trial(1).ending is Ending.CONVERGED


def test_under_zeus_run_the_power_limit_is_found_by_the_jobs_own_terms_and_its_profile_is_the_jobs(
    card: VirtualGpu, tmp_path: Path, launched: Launch, launched_store: Store
) -> None:
    launched(spec(power_limits=(250.0, 150.0), eta_knob=1.0), ETA_KNOB=1.0)
    power = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    watch = Watch(card)
    trainer(tmp_path, [power, watch], 1600).train()
    assert set(watch.limits) == {250.0, 150.0}
    ((key, profile),) = launched_store.profiles("asr").items()
    assert (key.batch_size, profile.limits) == (16, (250.0, 150.0))

    again = HFGlobalPowerLimitOptimizer(ZeusMonitor())
    assert (again.profile, again.best_limit) == (profile, power.best_limit)  # known before the first step
    assert isinstance(again.optimizer.selector, ZeusCost) and again.optimizer.selector.eta_knob == 1.0
    mine = HFGlobalPowerLimitOptimizer(ZeusMonitor(), Energy(), profile_path=tmp_path / "mine.json")
    assert (mine.profile, mine.optimizer.key.job, type(mine.optimizer.selector)) == (None, "", Energy)


def test_a_metric_that_is_not_evaluated_is_said_with_those_that_are(card: VirtualGpu, tmp_path: Path) -> None:
    optimizer = BatchSizeOptimizer(ZeusMonitor(), job=spec(), store=MemoryStore())
    trained = trainer(tmp_path, [BatchSizeCallback("accuracy", optimizer)], 80, eval_strategy="epoch")
    with pytest.raises(InputError, match=r"metric='accuracy' was not evaluated.*eval_loss"):
        trained.train()


def test_a_misspelt_metric_is_found_before_the_first_epoch_where_there_is_an_evaluation(
    card: VirtualGpu, tmp_path: Path
) -> None:
    optimizer = BatchSizeOptimizer(ZeusMonitor(), job=spec(), store=MemoryStore())
    callback = BatchSizeCallback("accuracy", optimizer)
    trained = trainer(tmp_path, [callback], 80, eval_strategy="epoch", eval_on_start=True)
    with pytest.raises(InputError, match=r"metric='accuracy' was not evaluated.*eval_loss"):
        trained.train()
    assert trained.state.global_step == 0


def test_a_misspelt_metric_does_not_cost_a_training_that_is_done(
    card: VirtualGpu, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    optimizer = BatchSizeOptimizer(ZeusMonitor(), job=spec(), store=store)
    callback = BatchSizeCallback("accuracy", optimizer)
    trained = trainer(tmp_path, [callback], 80, eval_strategy="epoch", num_train_epochs=1)
    assert trained.train().global_step == 10  # its result can be saved
    assert "zeus: metric='accuracy' was not evaluated. Give one of those that were: " in capfd.readouterr().err
    outcome = store.trial("asr", 1).trial.outcome
    assert outcome is not None and (outcome.ending, outcome.metric) == (Ending.CRASHED, None)


def test_other_data_sets_may_be_evaluated_beside_the_one_that_counts(card: VirtualGpu, tmp_path: Path) -> None:
    store = MemoryStore()
    optimizer = BatchSizeOptimizer(ZeusMonitor(), job=spec(), store=store)
    trained = trainer(tmp_path, [BatchSizeCallback("eval_second_accuracy", optimizer)], 80, eval_strategy="epoch")
    trained.eval_dataset = {"first": trained.eval_dataset, "second": trained.eval_dataset}
    trained.compute_metrics = accuracy([0.9, 0.1, 0.9, 0.9])  # of first, second, first, second
    trained.train()
    outcome = store.trial("asr", 1).trial.outcome
    assert outcome is not None and (outcome.ending, outcome.epochs) == (Ending.CONVERGED, 2)


def test_the_papers_way_of_profiling_is_an_argument_too(card: VirtualGpu, tmp_path: Path) -> None:
    power = HFGlobalPowerLimitOptimizer(ZeusMonitor(), power_limits=[250, 200], profiling="paper")
    trainer(tmp_path, [power], size=4800, num_train_epochs=1).train()
    assert power.profile is not None
    assert [one.limit_watts for one in power.profile.slices] == [250, 200]
    assert all(one.seconds >= 5 for one in power.profile.slices)
