"""ZeusDataLoader: Listing 1 and what surrounds it, on a virtual V100."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'zeus-energy[torch]'")

from torch.utils.data import TensorDataset  # noqa: E402

from support.cards import RESNET, VirtualCards  # noqa: E402
from support.paths import ROOT  # noqa: E402
from support.programs import python_env, run_python  # noqa: E402
from support.sensors import FailedGpu  # noqa: E402
from zeus import ZeusDataLoader  # noqa: E402
from zeus.device.virtual import VirtualGpu, presets, step  # noqa: E402
from zeus.device.virtual.physics import operate  # noqa: E402
from zeus.errors import InputError  # noqa: E402
from zeus.job import Ending  # noqa: E402
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer  # noqa: E402
from zeus.settings import Mode  # noqa: E402
from zeus.training.session import Session  # noqa: E402
from zeus.trial.engine import Terms  # noqa: E402

pytestmark = pytest.mark.usefixtures("warm_torch")

GPU = f"virtual:{RESNET}"
on_one_core = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # torch advises against more workers


@pytest.fixture(autouse=True)
def gpu(virtual_cards: VirtualCards) -> VirtualGpu:
    return virtual_cards(RESNET)[0]


def data(count: int = 6400) -> TensorDataset:
    return TensorDataset(torch.arange(count, dtype=torch.float32).reshape(-1, 1))


def run(
    loader: ZeusDataLoader, metrics: Iterator[float] | None = None, evaluation: ZeusDataLoader | None = None
) -> int:
    epochs = 0
    for _ in loader.epochs():
        for _ in loader:
            pass
        for _ in evaluation or ():
            pass
        epochs += 1
        if metrics is not None:
            loader.report_metric(next(metrics))
    return epochs


def test_listing_1_word_for_word_ends_at_the_target_with_a_lower_limit(tmp_path: Path) -> None:
    script = (ROOT / "examples" / "listing1.py").read_text()
    script += "\nprint(train_loader.summary.ending, train_loader.summary.limit, train_loader.summary.saving.share)\n"
    done = run_python("-c", script, env=python_env(ZEUS_GPU="virtual:v100?clock=virtual"))
    ending, limit, share = done.stdout.split()
    assert ending == "converged"
    assert float(limit) < 250
    assert 0 < float(share) < 1
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("zeus: reached 0.97")
    assert "saved" in lines[0]


def test_the_summary_holds_what_was_used_and_saved(gpu: VirtualGpu, capsys: pytest.CaptureFixture[str]) -> None:
    loader = ZeusDataLoader(data(), 128, 5)
    assert run(loader) == 5
    summary = loader.summary
    assert summary.ending is Ending.NOT_CONVERGED
    assert summary.joules == pytest.approx(gpu.energy(), rel=0.01)
    assert summary.seconds == pytest.approx(gpu.clock.now(), rel=0.01)
    assert summary.cost == pytest.approx(0.5 * summary.joules + 0.5 * 250 * summary.seconds)
    assert summary.limit is not None and summary.limit < 250
    assert summary.saving is not None and summary.saving.joules > 0
    assert gpu.limit() == 250
    assert capsys.readouterr().err.count("\n") == 1


def test_with_the_cpu_the_summary_counts_it_everywhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By hand: 5 epochs of 50 steps at one limit, with 150 W of CPU and 20 W of memory beside the GPU."""
    monkeypatch.setenv("ZEUS_GPU", f"{GPU}&cpu=150&dram=20")
    both = ZeusDataLoader(data(), 128, 5, mode="off", include=["gpu", "cpu"])
    alone = ZeusDataLoader(data(), 128, 5, mode="off", include=["gpu"])
    run(both)
    run(alone)
    each = operate(presets.card("v100"), presets.load("v100", "resnet50"), 128, 250.0)
    seconds = 5 * 50 * each.seconds
    assert (both.summary.include, alone.summary.include) == (("gpu", "cpu"), ("gpu",))
    assert both.summary.seconds == pytest.approx(seconds)
    assert both.summary.joules == pytest.approx(seconds * (each.watts + 170))
    assert both.summary.cost == pytest.approx(0.5 * both.summary.joules + 0.5 * 250 * seconds)
    assert alone.summary.joules == pytest.approx(seconds * each.watts)
    said = capsys.readouterr().err.splitlines()
    assert [" J of GPU and CPU" in line for line in said] == [True, False]


def test_with_the_cpu_the_best_limit_is_higher(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZEUS_GPU", f"{GPU}&cpu=400")
    limits = []
    for include in (["gpu"], ["gpu", "cpu"]):
        loader = ZeusDataLoader(data(), 128, 5, include=include)
        run(loader)
        limits.append(loader.summary.limit)
    assert limits[0] < limits[1]


def test_a_cpu_that_cannot_be_read_is_refused_before_the_training() -> None:
    with pytest.raises(InputError, match="the cost includes the CPU, but its energy cannot be measured"):
        ZeusDataLoader(data(640), 64, 1, include=["gpu", "cpu"])


def test_quiet_means_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ZEUS_QUIET", "1")
    run(ZeusDataLoader(data(640), 64, 1))
    captured = capsys.readouterr()
    assert captured.err == captured.out == ""


def test_it_stops_at_the_target_in_either_direction() -> None:
    up = ZeusDataLoader(data(640), 64, 10, 0.8)
    assert run(up, iter([0.5, 0.7, 0.81, 0.9])) == 3
    assert up.summary.ending is Ending.CONVERGED
    assert up.summary.metric == 0.81
    down = ZeusDataLoader(data(640), 64, 10, 40.0, higher_is_better=False)
    assert run(down, iter([80.0, math.nan, 39.0])) == 3


def test_the_clock_stops_at_the_report_that_reaches_the_target(gpu: VirtualGpu) -> None:
    loader = ZeusDataLoader(data(640), 64, 10, 0.5)
    for _ in loader.epochs():
        for _ in loader:
            pass
        loader.report_metric(0.9)
        reached = gpu.clock.now()
        gpu.clock.sleep(1000)  # saving a checkpoint, say
    assert loader.summary.seconds == pytest.approx(reached)


def test_it_stops_before_the_epoch_that_would_exceed_the_cost_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    free = ZeusDataLoader(data(), 128, 10)
    run(free)
    limit = free.summary.cost * 0.55
    monkeypatch.setenv("ZEUS_COST_THRESH", str(limit))
    bound = ZeusDataLoader(data(), 128, 10)
    epochs = run(bound)
    assert bound.summary.ending is Ending.STOPPED
    assert 1 <= epochs < 10
    assert bound.summary.cost <= limit
    assert bound.summary.cost > limit * 0.7


def test_an_epoch_that_turns_out_to_cost_too_much_is_left_in_its_middle(
    gpu: VirtualGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_MODE", "off")
    usual = ZeusDataLoader(data(), 128, 1)
    run(usual)
    monkeypatch.setenv("ZEUS_COST_THRESH", str(3 * usual.summary.cost))
    loader, batches = ZeusDataLoader(data(), 128, 9), [0]
    for epoch in loader.epochs():
        for _ in loader:
            batches[-1] += 1
            if epoch > 0:
                gpu.machine.run([0], seconds=usual.summary.seconds / 5, watts=250)  # a batch as dear as ten before
        batches.append(0)
    assert batches[0] == 50 and 0 < batches[1] < 30
    assert loader.summary.ending is Ending.STOPPED


def test_evaluation_is_counted(gpu: VirtualGpu) -> None:
    alone = ZeusDataLoader(data(), 128, 3)
    run(alone)
    both = ZeusDataLoader(data(), 128, 3)
    run(both, evaluation=ZeusDataLoader(data(3200), 128))
    assert both.summary.joules > 1.3 * alone.summary.joules
    assert both.summary.seconds > 1.3 * alone.summary.seconds


def test_an_exception_in_the_loop_restores_the_limit_and_closes_the_window(gpu: VirtualGpu) -> None:
    loader = ZeusDataLoader(data(), 128, 5)

    def broken() -> None:
        for _ in loader.epochs():
            for i, _ in enumerate(loader):
                if i == 40:
                    raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        broken()
    assert gpu.limit() == 250
    assert loader.summary.ending is Ending.LOST
    assert loader.summary.joules > 0


def test_a_loop_that_is_left_early_restores_the_limit(gpu: VirtualGpu) -> None:
    loader = ZeusDataLoader(data(), 128, 5)
    for _ in loader.epochs():
        for i, _ in enumerate(loader):
            if i == 30:
                break
        break
    import gc

    gc.collect()
    assert gpu.limit() == 250


def test_observer_mode_predicts_what_a_second_run_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prediction of one observed run against a real run at the best limit, profiled before."""
    monkeypatch.setenv("ZEUS_JOB_ID", "recurring")
    observed = ZeusDataLoader(data(12800), 128, 20, mode="observe")
    run(observed, evaluation=ZeusDataLoader(data(1280), 128))
    saving = observed.summary.saving
    assert saving is not None
    assert observed.summary.mode is Mode.OBSERVE
    off = ZeusDataLoader(data(12800), 128, 20, mode="off")
    run(off, evaluation=ZeusDataLoader(data(1280), 128))
    second = ZeusDataLoader(data(12800), 128, 20)
    run(second, evaluation=ZeusDataLoader(data(1280), 128))
    joules, seconds = off.summary.joules - second.summary.joules, off.summary.seconds - second.summary.seconds
    assert saving.joules == pytest.approx(joules, rel=0.01)
    assert saving.seconds == pytest.approx(seconds, abs=0.005 * off.summary.seconds)
    assert abs(saving.joules - joules) <= 2 * saving.joules_error
    assert abs(saving.seconds - seconds) <= 2 * saving.seconds_error


def test_money_and_carbon_are_the_users_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_PRICE_PER_KWH", "0.3")
    monkeypatch.setenv("ZEUS_CURRENCY", "EUR")
    monkeypatch.setenv("ZEUS_GCO2E_PER_KWH", "400")
    loader = ZeusDataLoader(data(), 128, 5)
    run(loader)
    saving = loader.summary.saving
    assert saving is not None and saving.money is not None and saving.gco2e is not None
    assert saving.kwh == pytest.approx(saving.joules / 3.6e6)
    assert saving.money == pytest.approx(0.3 * saving.kwh)
    assert saving.gco2e == pytest.approx(400 * saving.kwh)


def test_a_profile_is_kept_for_a_job_with_an_id_and_for_no_other(
    gpu: VirtualGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(ZeusDataLoader(data(), 128, 5))
    assert not list(tmp_path.glob("data/**/*.json"))
    monkeypatch.setenv("ZEUS_JOB_ID", "a/b")
    run(ZeusDataLoader(data(), 128, 5))
    again = ZeusDataLoader(data(), 128, 1)
    epochs = again.epochs()
    next(epochs)
    assert gpu.limit() == again.summary.limit < 250  # type: ignore[operator]
    epochs.close()  # type: ignore[attr-defined]
    other = ZeusDataLoader(data(), 64, 1)
    epochs = other.epochs()
    next(epochs)
    assert gpu.limit() == 250  # another batch size is another profile
    epochs.close()  # type: ignore[attr-defined]


def test_the_launchers_batch_size_takes_the_place_of_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_BATCH_SIZE", "256")
    assert ZeusDataLoader(data(), 128, 5).batch_size == 256
    assert ZeusDataLoader(data(), 128).batch_size == 128


def test_batches_are_accumulated_where_the_launcher_says_so(monkeypatch: pytest.MonkeyPatch, gpu: VirtualGpu) -> None:
    def steps(size: int) -> tuple[list[int], float]:
        loader = ZeusDataLoader(data(1000), 99, 1, mode="off")
        assert loader.summary.batch_size == 256
        began, seen = gpu.clock.now(), []
        for _ in loader.epochs():
            seen = [len(batch[0]) for batch in loader]
        return seen, gpu.clock.now() - began

    monkeypatch.setenv("ZEUS_BATCH_SIZE", "256")
    whole, at_once = steps(256)
    monkeypatch.setenv("ZEUS_PER_DEVICE_BATCH_SIZE", "64")
    monkeypatch.setenv("ZEUS_ACCUMULATION_STEPS", "4")
    parts, in_parts = steps(64)
    assert (whole, parts) == ([256] * 3 + [232], [64] * 15 + [40])
    assert in_parts > 0 < at_once
    loader = ZeusDataLoader(data(), 99, 1)
    assert (loader.accumulation_steps, ZeusDataLoader(data(), 99).accumulation_steps) == (4, 1)
    assert ZeusDataLoader(data(), 99).batch_size == 99


@on_one_core
def test_all_dataloader_keywords_work() -> None:
    loader = ZeusDataLoader(
        data(1000), batch_size=64, max_epochs=1, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True
    )
    seen = [len(batch[0]) for _ in loader.epochs() for batch in loader]
    assert seen == [64] * 15
    assert len(loader) == 15


def test_bad_input_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="shuffle=True"):
        ZeusDataLoader(data(), 64, True)
    with pytest.raises(InputError, match="max_epochs"):
        ZeusDataLoader(data(), 64, 0)
    with pytest.raises(InputError, match="mode"):
        ZeusDataLoader(data(), 64, 1, mode="fast")
    with pytest.raises(InputError, match="training loader"):
        ZeusDataLoader(data(), 64).report_metric(1.0)
    with pytest.raises(InputError, match="eta"):
        ZeusDataLoader(data(), 64, 1, eta=2)
    loader = ZeusDataLoader(data(64), 64, 1)
    run(loader)
    capsys.readouterr()
    with pytest.raises(InputError, match="used already"):
        run(loader)
    assert capsys.readouterr().err == ""  # not the summary once more


def test_a_loop_without_epochs_is_told_that_nothing_is_measured() -> None:
    loader = ZeusDataLoader(data(64), 64, 2)
    for _ in loader:
        pass
    with pytest.warns(RuntimeWarning, match=r"this training does not use epochs\(\): nothing is measured"):
        loader.report_metric(0.5)


def test_it_works_without_any_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_GPU", "auto")
    loader = ZeusDataLoader(data(640), 64, 2)
    assert run(loader) == 2
    assert math.isnan(loader.summary.joules)
    assert loader.summary.seconds > 0


def test_a_second_pass_in_an_epoch_counts_each_step_once() -> None:
    once, twice = ZeusDataLoader(data(12800), 128, 4), ZeusDataLoader(data(6400), 128, 4)
    run(once)
    for _ in twice.epochs():
        for _ in range(2):
            for _ in twice:
                pass
    assert once.summary.saving is not None and twice.summary.saving is not None
    assert twice.summary.saving.joules == pytest.approx(once.summary.saving.joules, rel=0.05)


def test_a_loop_left_in_the_middle_claims_no_more_than_its_steps_saved() -> None:
    loader = ZeusDataLoader(data(25600), 128, 4)
    for epoch in loader.epochs():
        for i, _ in enumerate(loader):
            if epoch == 1 and i == 150:
                break
        if epoch == 1:
            break
    summary = loader.summary
    assert summary.ending is Ending.LOST
    assert summary.saving is not None
    assert summary.saving.joules / summary.saving.share == pytest.approx(
        summary.joules + summary.saving.joules, rel=0.1
    )


def test_an_old_iterator_that_goes_away_does_not_end_the_new_pass(gpu: VirtualGpu) -> None:
    loader = ZeusDataLoader(data(), 128, 3)
    for _ in loader.epochs():
        peek = iter(loader)
        next(peek)
        for i, _ in enumerate(loader):
            if i == 5:
                peek = None
    plain = ZeusDataLoader(data(), 128, 3)
    run(plain)
    assert loader.summary.saving is not None and plain.summary.saving is not None
    assert loader.summary.saving.joules == pytest.approx(plain.summary.saving.joules, rel=0.1)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_outside_epochs_it_is_a_plain_loader_that_leaves_limits_alone(gpu: VirtualGpu, after: bool) -> None:
    loader = ZeusDataLoader(data(), 128, 3)
    if after:
        run(loader)
    used, seen = loader.summary.joules, set()
    for _ in range(5):
        for _ in loader:
            seen.add(gpu.limit())
    assert seen == {250.0}
    assert loader.summary.joules == used


def test_a_report_outside_of_an_epoch_decides_nothing() -> None:
    loader = ZeusDataLoader(data(640), 64, 2, 0.5)
    loader.report_metric(0.9)  # of a model that came trained, say
    assert run(loader, iter([0.4, 0.4])) == 2
    loader.report_metric(0.9)
    assert loader.summary.ending is Ending.NOT_CONVERGED


def test_a_metric_may_be_a_tensor_or_a_numpy_number_and_be_told_twice() -> None:
    numpy = pytest.importorskip("numpy")
    loader = ZeusDataLoader(data(640), 64, 5, 0.5)
    for _ in loader.epochs():
        for _ in loader:
            pass
        loader.report_metric(numpy.float32(0.25))
        loader.report_metric(torch.tensor(0.75))
        loader.report_metric(torch.tensor([0.5]))
    assert loader.summary.ending is Ending.CONVERGED
    assert loader.summary.epochs == 1


def test_a_report_amid_the_steps_ends_the_run_there(gpu: VirtualGpu) -> None:
    loader = ZeusDataLoader(data(), 128, 5, 0.5)
    for _ in loader.epochs():
        for i, _ in enumerate(loader):
            if i == 30:
                loader.report_metric(0.6)
                reached = gpu.clock.now()
    assert loader.summary.ending is Ending.CONVERGED
    assert loader.summary.seconds == pytest.approx(reached)
    assert gpu.limit() == 250


def test_no_batch_sampler_is_no_batch_sampler() -> None:
    loader = ZeusDataLoader(data(640), 64, 1, batch_sampler=None)
    assert loader.batch_size == 64
    assert [len(batch[0]) for _ in loader.epochs() for batch in loader] == [64] * 10


def test_a_batch_sampler_tells_the_batch_size() -> None:
    sampler = torch.utils.data.BatchSampler(range(640), 64, drop_last=False)
    loader = ZeusDataLoader(data(640), max_epochs=1, batch_sampler=sampler)
    assert [len(batch[0]) for _ in loader.epochs() for batch in loader] == [64] * 10
    assert loader.summary.batch_size == 64


def test_data_that_comes_in_batches_is_not_batched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_BATCH_SIZE", "32")
    loader = ZeusDataLoader(data(4), None, 1)
    assert [tuple(batch[0].shape) for _ in loader.epochs() for batch in loader] == [(1,)] * 4


class Endless(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
    def __iter__(self) -> Iterator[float]:
        return iter(map(float, range(100)))

    def __len__(self) -> int:
        raise NotImplementedError("nobody knows")


def test_an_iterable_dataset_has_no_length_and_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_COST_THRESH", "1e9")
    loader = ZeusDataLoader(Endless(), 10, 2)
    assert run(loader) == 2


def test_where_the_limit_found_is_best_no_saving_is_claimed(capsys: pytest.CaptureFixture[str]) -> None:
    loader = ZeusDataLoader(data(), 128, 3, mode="observe", eta=0.0)
    run(loader)
    assert loader.summary.saving is not None and loader.summary.saving.joules == 0
    line = capsys.readouterr().err
    assert "saved" not in line
    assert "250 W" in line


def test_a_card_lost_in_the_middle_does_not_end_the_loop(gpu: VirtualGpu, capsys: pytest.CaptureFixture[str]) -> None:
    loader = ZeusDataLoader(data(), 128, 2)
    for epoch in loader.epochs():
        for i, _ in enumerate(loader):
            if epoch == 0 and i == 20:
                gpu.machine.lose(0)
    assert loader.summary.ending is Ending.NOT_CONVERGED
    assert math.isnan(loader.summary.joules)
    line = capsys.readouterr().err
    assert "unknown energy" in line
    assert "nan" not in line


@pytest.mark.parametrize("epochs", [3, 10])
def test_what_is_said_to_be_saved_was_saved_profiling_included(epochs: int) -> None:
    """Against the same training at the limit found; the few steps of a short run were mostly profiled."""
    off = ZeusDataLoader(data(), 128, epochs, mode="off")
    run(off)
    loader = ZeusDataLoader(data(), 128, epochs)
    run(loader)
    saving = loader.summary.saving
    assert saving is not None
    assert saving.joules == pytest.approx(off.summary.joules - loader.summary.joules, rel=0.02)
    assert saving.seconds == pytest.approx(off.summary.seconds - loader.summary.seconds, rel=0.02)


def test_an_error_on_the_gpu_is_what_the_user_sees_and_the_limit_is_put_back(gpu: VirtualGpu) -> None:
    monitor = FailedGpu()
    optimizer = GlobalPowerLimitOptimizer(monitor)
    session = Session(optimizer, Terms(target_metric=None, max_epochs=3, cost=None, batch_size=256))

    def train() -> None:
        for _ in session.epochs():
            session.begin_steps()
            while gpu.limit() == 250:
                step([gpu], 256)
                session.step_end()
            monitor.failed = True
            raise KeyError("the user's own")

    with pytest.raises(KeyError, match="own"):
        train()
    assert gpu.limit() == 250
    assert session.summary.ending is Ending.LOST
    assert session.summary.joules > 0


@on_one_core
@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_is_left_and_taken_up_again_keeps_the_books(gpu: VirtualGpu, workers: int) -> None:
    """Persistent workers fork while the lease is held; a child that ends must not end the lease."""
    loader = ZeusDataLoader(data(6400), 128, 4, num_workers=workers, persistent_workers=workers > 0)
    seen = []
    for epoch in loader.epochs():
        for i, _ in enumerate(loader):
            if epoch == 1 and i == 10:
                break
        seen.append(gpu.limit())
    assert loader.summary.epochs == 4
    assert seen[-1] == loader.summary.limit
    assert gpu.limit() == 250


def test_the_launchers_epochs_take_the_place_of_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_MAX_EPOCHS", "2")
    assert run(ZeusDataLoader(data(640), 64, 5)) == 2


def test_one_rank_writes_the_summary_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    run(ZeusDataLoader(data(640), 64, 1))
    assert capsys.readouterr().err == ""


def test_a_standard_error_that_is_closed_does_not_end_the_training() -> None:
    closed = io.StringIO()
    closed.close()
    with contextlib.redirect_stderr(closed):
        assert run(ZeusDataLoader(data(640), 64, 1)) == 1


def test_a_cost_limit_below_one_epoch_lets_the_first_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_COST_THRESH", "1")
    loader = ZeusDataLoader(data(640), 64, 5)
    assert run(loader) == 1
    assert loader.summary.ending is Ending.STOPPED


def test_a_first_epoch_that_a_known_profile_says_does_not_fit_is_not_run(
    gpu: VirtualGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_JOB_ID", "recurring")
    first = ZeusDataLoader(data(), 128, 3)
    run(first)
    monkeypatch.setenv("ZEUS_COST_THRESH", str(first.summary.cost / 3 / 2))
    loader = ZeusDataLoader(data(), 128, 3)
    assert run(loader) == 0
    assert loader.summary.ending is Ending.STOPPED
    assert loader.summary.joules == 0
    assert gpu.limit() == 250
    monkeypatch.setenv("ZEUS_COST_THRESH", str(first.summary.cost / 3 * 1.5))
    assert run(ZeusDataLoader(data(), 128, 3)) == 1


def test_the_loader_profiles_in_the_papers_way_if_asked() -> None:
    loader = ZeusDataLoader(data(12_800), 64, 8, profiling="paper")
    run(loader)
    profile = loader._zeus_session._optimizer.profile  # type: ignore[union-attr]
    assert profile is not None and not profile.unmeasured
    assert min(one.seconds for one in profile.slices) >= 5
    with pytest.raises(InputError, match="profiling='papers': give walk or paper"):
        ZeusDataLoader(data(), 64, 8, profiling="papers")
