"""The power limit, from the first step to the limit put back: the controller on virtual cards."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from support.cards import RESNET_X2, VirtualCards
from support.launched import Launch
from support.sensors import FailedGpu, SensedGpu, Sensors
from support.waiting import eventually
from zeus.cost import CostModel
from zeus.device.keeper import Lease, lend
from zeus.device.virtual import VirtualGpu, step
from zeus.device.virtual.physics import operate
from zeus.distributed.group import RankGroup
from zeus.errors import DeviceError, InputError
from zeus.job import JobSpec, replace
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import (
    Energy,
    GlobalPowerLimitOptimizer,
    MaxSlowdownConstraint,
    OptimumSelector,
    PowerLimitMeasurement,
    Time,
    ZeusCost,
)
from zeus.optimizer.power_limit.profile_files import FolderProfiles
from zeus.profile import ProfileKey

pytestmark = pytest.mark.usefixtures("warm", "virtual_v100s")


@pytest.fixture
def virtual_v100s(virtual_cards: VirtualCards) -> list[VirtualGpu]:
    return virtual_cards(RESNET_X2)


def profiled(path: Path) -> GlobalPowerLimitOptimizer:
    """After a training whose profile is kept in this file."""
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), profile_path=path)
    train(optimizer)
    optimizer.on_train_end()
    return optimizer


def train(
    optimizer: GlobalPowerLimitOptimizer, epochs: int = 30, steps: int = 20, batch_size: int = 256
) -> list[float]:
    """Train; the limit in force at each epoch's end."""
    gpus = list(optimizer.monitor.gpus.values())
    limits = []
    for _ in range(epochs):
        optimizer.on_epoch_begin()
        for _ in range(steps):
            optimizer.on_step_begin()
            step(gpus, batch_size)
            optimizer.on_step_end()
        optimizer.on_epoch_end()
        limits.append(gpus[0].limit())
    return limits


def test_it_profiles_then_keeps_the_best_and_puts_back_what_it_found(virtual_v100s: list[VirtualGpu]) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor())
    limits = train(optimizer)
    assert optimizer.best_limit == limits[-1] < 250
    assert optimizer.profile is not None
    assert [gpu.limit() for gpu in virtual_v100s] == [limits[-1]] * 2
    costs = {s.limit_watts: s.joules / s.steps * 0.5 + 250 * s.seconds / s.steps for s in optimizer.profile.slices}
    assert min(costs, key=lambda w: costs[w]) == optimizer.best_limit  # MAXPOWER is that of both cards
    optimizer.on_train_end()
    assert [gpu.limit() for gpu in virtual_v100s] == [250.0, 250.0]


@pytest.mark.parametrize("mode", ["optimize", "observe"])
def test_one_evaluation_runs_at_the_other_limit_so_that_both_are_known(
    virtual_v100s: list[VirtualGpu], mode: str
) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), mode=mode)
    limits = train(optimizer, epochs=5, steps=300)
    best = optimizer.best_limit
    assert best is not None and best < 250
    usual, other = (best, 250.0) if mode == "optimize" else (250.0, best)
    assert limits[1:] == [other, usual, usual, usual]
    optimizer.on_train_end()
    assert [gpu.limit() for gpu in virtual_v100s] == [250.0, 250.0]


def test_a_launcher_that_names_only_its_trial_has_profiles_kept_by_the_size_of_that(
    launched: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monitor = ZeusMonitor()
    spec = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16), default_batch_size=16)
    launched(spec, monitor)
    monkeypatch.delenv("ZEUS_BATCH_SIZE")
    assert GlobalPowerLimitOptimizer(monitor).key == ProfileKey("asr", 16, monitor.gpus[0].spec.name, 2)
    monkeypatch.setenv("ZEUS_TRIAL", "99")
    assert GlobalPowerLimitOptimizer(monitor).key.job == ""  # nothing is known of it, so no profile is kept for it


def test_an_optimizer_that_nobody_holds_any_more_gives_its_limit_back_at_once(virtual_v100s: list[VirtualGpu]) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor())
    optimizer.on_epoch_begin()
    while virtual_v100s[0].limit() == 250:
        step(virtual_v100s, 256)
        optimizer.on_step_end()
    gc.disable()  # so that only a reference that is gone frees it
    try:
        del optimizer
        eventually(lambda: [gpu.limit() for gpu in virtual_v100s] == [250, 250])
    finally:
        gc.enable()


@pytest.mark.parametrize("profiling", ["walk", "paper"])
def test_a_training_too_short_to_profile_says_how_far_it_came(virtual_v100s: list[VirtualGpu], profiling: str) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), profiling=profiling)
    train(optimizer, epochs=1, steps=5)
    assert optimizer.is_profiling
    optimizer.on_train_end()
    assert (optimizer.profile, optimizer.best_limit) == (None, None)
    assert re.fullmatch(r"the training ended during profiling, with \d of 7 limits measured", optimizer.why_not or "")
    assert [gpu.limit() for gpu in virtual_v100s] == [250, 250]
    train(optimizer, epochs=1, steps=2000)  # another training with it goes on from there
    assert optimizer.best_limit is not None and optimizer.why_not is None
    optimizer.on_train_end()


@pytest.mark.parametrize("steps", [1, 5])
def test_short_epochs_finish_profiling_too(steps: int) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor())
    train(optimizer, epochs=400 // steps, steps=steps)
    assert optimizer.best_limit is not None
    optimizer.on_train_end()


def test_a_warm_up_of_no_steps_works() -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), wait_steps=0, warmup_steps=0)
    train(optimizer)
    assert optimizer.best_limit is not None
    optimizer.on_train_end()


def test_one_single_allowed_limit_is_measured_and_kept(virtual_v100s: list[VirtualGpu]) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), power_limits=[150])
    assert train(optimizer)[-1] == 150
    assert optimizer.best_limit == 150
    optimizer.on_train_end()
    assert virtual_v100s[0].limit() == 250


def test_a_limit_found_below_the_cards_maximum_is_never_exceeded(virtual_v100s: list[VirtualGpu]) -> None:
    for gpu in virtual_v100s:
        gpu.set_limit(190)
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), Time())
    seen = {190.0}
    gpus = list(optimizer.monitor.gpus.values())
    optimizer.on_epoch_begin()
    for _ in range(300):
        step(gpus, 256)
        optimizer.on_step_end()
        seen.add(gpus[0].limit())
    optimizer.on_epoch_end()
    assert max(seen) == 190
    assert optimizer.best_limit == 190
    assert optimizer.max_watts == 500  # MAXPOWER is what the cards support, not what was found
    optimizer.on_train_end()
    assert [gpu.limit() for gpu in virtual_v100s] == [190, 190]


def test_the_keeper_killed_in_the_middle_ends_profiling_not_training(virtual_v100s: list[VirtualGpu]) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor())
    train(optimizer, epochs=1, steps=6)
    assert optimizer.is_profiling
    assert optimizer._limits.lease is not None
    os.kill(optimizer._limits.lease._channel.keeper_pid, signal.SIGKILL)
    train(optimizer)
    assert not optimizer.is_profiling
    assert optimizer.best_limit is None
    assert optimizer.why_not is not None
    optimizer.on_train_end()
    eventually(lambda: [gpu.limit() for gpu in virtual_v100s] == [250, 250])


def test_a_gpu_lost_in_the_middle_ends_profiling_not_training(virtual_v100s: list[VirtualGpu]) -> None:
    monitor = ZeusMonitor()
    optimizer = GlobalPowerLimitOptimizer(monitor)
    monitor.begin_window("all")
    train(optimizer, epochs=1, steps=6)
    virtual_v100s[0].machine.lose(1)
    gpus = list(monitor.gpus.values())
    optimizer.on_epoch_begin()
    for _ in range(50):
        step(gpus[:1], 256)
        optimizer.on_step_end()
    optimizer.on_epoch_end()
    assert not optimizer.is_profiling
    measured = monitor.end_window("all")
    assert measured.sources[1] == "unavailable"
    assert measured.gpu_energy[0] > 0
    optimizer.on_train_end()
    assert virtual_v100s[0].limit() == 250


def test_observer_mode_goes_back_to_the_limit_found(virtual_v100s: list[VirtualGpu]) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), mode="observe")
    limits = train(optimizer)
    assert limits[-1] == 250
    assert optimizer.best_limit is not None and optimizer.best_limit < 250
    optimizer.on_train_end()


def test_off_touches_nothing(virtual_v100s: list[VirtualGpu], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_MODE", "off")
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor())
    assert set(train(optimizer)) == {250.0}
    assert optimizer.best_limit is None
    optimizer.on_train_end()


@pytest.mark.parametrize("told", ["argument", "variable"])
def test_the_papers_way_measures_every_limit_for_five_seconds_over_as_many_epochs_as_it_takes(
    monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setenv("ZEUS_PROFILING", "walk" if told == "argument" else "paper")
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), Time(), profiling="paper" if told == "argument" else None)
    train(optimizer, epochs=1)
    assert optimizer.is_profiling  # an epoch of 20 steps is shorter than five seconds at each of seven limits
    train(optimizer, epochs=80)
    profile = optimizer.profile
    optimizer.on_train_end()
    assert profile is not None
    assert [one.limit_watts for one in profile.slices] == [250, 225, 200, 175, 150, 125, 100]
    for one in profile.slices:
        assert 5 <= one.seconds < 5 + one.seconds / one.steps + 0.1


def test_a_profile_is_a_profile_whichever_way_made_it(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"

    def training(profiling: str) -> GlobalPowerLimitOptimizer:
        optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), Time(), profile_path=path, profiling=profiling)
        train(optimizer, epochs=80)
        optimizer.on_train_end()
        return optimizer

    walked = training("walk").profile
    assert walked is not None and walked.unmeasured  # Time() has no use for the lowest limits
    papers = training("paper").profile
    assert papers is not None and not papers.unmeasured
    kept = [one for one in papers.slices if one.limit_watts not in walked.unmeasured]
    seen = [[(one.limit_watts, one.steps, one.seconds, one.joules) for one in some] for some in (kept, walked.slices)]
    assert seen[0] == seen[1]
    assert all(papers.at(watts).seconds >= 5 for watts in walked.unmeasured)
    written = path.read_text()
    for profiling in ("walk", "paper"):
        known = GlobalPowerLimitOptimizer(ZeusMonitor(), Time(), profile_path=path, profiling=profiling)
        assert known.profile == papers  # before any step
    assert path.read_text() == written


def test_a_known_profile_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    first = profiled(path)
    second = GlobalPowerLimitOptimizer(ZeusMonitor(), profile_path=path)
    second.on_train_begin()
    assert not second.is_profiling
    gpus = list(second.monitor.gpus.values())
    assert gpus[0].limit() == first.best_limit
    second.on_train_end()
    rows = json.loads(path.read_text())["measurements"]
    assert {"power_limit", "energy", "time"} <= set(rows[0])


def test_the_walk_begins_where_that_of_the_nearest_batch_size_ended(tmp_path: Path) -> None:
    profiles = FolderProfiles(tmp_path)
    key = ProfileKey("near", 256, "v100", 2)
    first = GlobalPowerLimitOptimizer(ZeusMonitor(), ZeusCost(1.0), profiles=profiles, key=key)
    train(first)
    first.on_train_end()
    assert first.best_limit is not None
    assert first.best_limit < 250
    second = GlobalPowerLimitOptimizer(ZeusMonitor(), profiles=profiles, key=replace(key, batch_size=128), wait_steps=0)
    second.on_train_begin()
    gpus = list(second.monitor.gpus.values())
    assert gpus[0].limit() == second._setup.plan.start_watts  # type: ignore[union-attr]
    assert gpus[0].limit() < 250
    second.on_train_end()
    elsewhere = replace(key, batch_size=128, gpu_model="a40")
    third = GlobalPowerLimitOptimizer(ZeusMonitor(), profiles=profiles, key=elsewhere, wait_steps=0)
    third.on_train_begin()
    assert gpus[0].limit() == 250
    third.on_train_end()


def test_a_profile_of_something_else_is_never_used(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    first = profiled(path)
    with pytest.raises(InputError, match="holds the power profile of"):
        GlobalPowerLimitOptimizer(ZeusMonitor(), profile_path=path, key=replace(first.key, batch_size=64))


def test_a_profile_written_by_the_existing_package_is_read(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    rows = [{"power_limit": w, "energy": 100 + abs(w - 150), "time": 1 + (250 - w) / 1000} for w in range(100, 251, 25)]
    path.write_text(json.dumps({"measurements": rows}))
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), Energy(), profile_path=path)
    optimizer.on_train_begin()
    assert optimizer.best_limit == 150
    optimizer.on_train_end()


def test_another_selector_has_measured_what_could_win(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    fast = GlobalPowerLimitOptimizer(ZeusMonitor(), Time(), profile_path=path)
    train(fast)
    fast.on_train_end()
    assert fast.profile is not None
    left_out = fast.profile.unmeasured
    assert left_out  # low limits cannot be the fastest
    frugal = GlobalPowerLimitOptimizer(ZeusMonitor(), Energy(), profile_path=path)
    train(frugal)
    frugal.on_train_end()
    assert frugal.profile is not None
    assert set(frugal.profile.unmeasured) < set(left_out)
    assert frugal.best_limit is not None and fast.best_limit is not None
    assert frugal.best_limit < fast.best_limit
    assert len(json.loads(path.read_text())["measurements"]) == len(frugal.profile.slices)


def test_without_permission_a_known_profile_is_still_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, virtual_v100s: list[VirtualGpu]
) -> None:
    path = tmp_path / "profile.json"
    first = profiled(path)
    monkeypatch.setenv("ZEUS_READ_ONLY", "1")
    second = GlobalPowerLimitOptimizer(ZeusMonitor(), profile_path=path)
    assert set(train(second)) == {250.0}
    assert second.best_limit == first.best_limit
    assert second.why_not is not None and "ZEUS_READ_ONLY" in second.why_not
    second.on_train_end()


class Middle(OptimumSelector):
    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        return sorted(m.power_limit for m in measurements)[len(measurements) // 2]


def test_a_selector_of_the_users_own_sees_every_limit() -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), Middle())
    assert train(optimizer)[-1] == 175
    assert optimizer.profile is not None and not optimizer.profile.unmeasured
    optimizer.on_train_end()


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.2])
def test_a_slowdown_constraint_is_kept(factor: float) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), MaxSlowdownConstraint(factor))
    train(optimizer)
    optimizer.on_train_end()
    assert optimizer.profile is not None and optimizer.best_limit is not None
    top, best = optimizer.profile.at(250), optimizer.profile.at(optimizer.best_limit)
    assert best.seconds / best.steps <= factor * top.seconds / top.steps


def test_steps_that_become_slower_are_profiled_again_if_asked() -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), recheck=0.3)
    train(optimizer, batch_size=256)
    assert not optimizer.is_profiling
    before = optimizer.profile
    train(optimizer, batch_size=64)
    assert optimizer.profile is not None
    assert optimizer.profile != before
    optimizer.on_train_end()


def test_wrong_arguments_are_refused_before_anything_is_changed(virtual_v100s: list[VirtualGpu]) -> None:
    monitor = ZeusMonitor()
    steps = ({"pl_step": 0}, {"profile_steps": 0}, {"warmup_steps": -1})
    for wrong in (*steps, {"power_limits": [90]}, {"mode": "max"}, {"profiling": "all"}):
        with pytest.raises(ValueError):
            GlobalPowerLimitOptimizer(monitor, **wrong)  # type: ignore[arg-type]
    assert virtual_v100s[0].limit() == 250


def test_eta_means_the_same_on_any_number_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    best = {}
    for count in (1, 4):
        monkeypatch.setenv("ZEUS_GPU", f"virtual:v100x{count}?clock=virtual&load=resnet50")
        monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / f"cards{count}"))
        optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), ZeusCost(0.7))
        train(optimizer)
        best[count] = optimizer.best_limit
        optimizer.on_train_end()
    assert best[1] == best[4] is not None


def test_through_real_sensors_the_choice_is_as_good(virtual_v100s: list[VirtualGpu]) -> None:
    """The same card seen late, blurred, noisy and in steps: the limit chosen costs hardly more than the best."""
    machine = virtual_v100s[0].machine
    sensed = SensedGpu(virtual_v100s[0], Sensors(noise=0.01, jitter=0.002, missed=0.02))
    monitor = ZeusMonitor(gpus={0: sensed})
    optimizer = GlobalPowerLimitOptimizer(monitor, ZeusCost(0.5))
    for _ in range(10):
        optimizer.on_epoch_begin()
        for _ in range(60):
            work = operate(machine.card, machine.load, 64, sensed.limit())
            sensed.run(work.seconds, work.watts)
            optimizer.on_step_end()
        optimizer.on_epoch_end()
    chosen = optimizer.best_limit
    optimizer.on_train_end()
    monitor.close()
    cost = CostModel(0.5, 250)
    costs = {}
    for limit in range(100, 251, 25):
        work = operate(machine.card, machine.load, 64, limit)
        costs[limit] = cost.cost(work.joules, work.seconds)
    assert chosen is not None
    assert costs[int(chosen)] < 1.02 * min(costs.values())


def test_one_selector_may_serve_several_optimizers() -> None:
    """MAXPOWER is that of each optimizer's own GPUs, and the user's object stays as it was given."""
    shared = ZeusCost(0.5)
    small = GlobalPowerLimitOptimizer(ZeusMonitor(gpu_indices=[0]), shared)
    large = GlobalPowerLimitOptimizer(ZeusMonitor(gpu_indices=[0, 1]), shared)
    assert isinstance(small.selector, ZeusCost) and isinstance(large.selector, ZeusCost)
    assert (small.selector.max_watts, large.selector.max_watts) == (250.0, 500.0)
    assert shared.max_watts is None


class Broken(OptimumSelector):
    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        raise ZeroDivisionError("nobody thought of this")


def test_a_selector_that_raises_ends_profiling_not_training(virtual_v100s: list[VirtualGpu]) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), Broken())
    assert train(optimizer, epochs=60)[-1] == 250
    assert (optimizer.best_limit, optimizer.profile) == (None, None)
    assert optimizer.why_not is not None and "nobody thought of this" in optimizer.why_not
    optimizer.on_train_end()


def test_after_an_error_on_the_gpu_the_limit_is_put_back_at_once(virtual_v100s: list[VirtualGpu]) -> None:
    monitor = FailedGpu()
    optimizer = GlobalPowerLimitOptimizer(monitor)
    gpus = list(monitor.gpus.values())
    optimizer.on_epoch_begin()
    while gpus[0].limit() == 250 or not optimizer.is_profiling:
        step(gpus, 256)
        optimizer.on_step_end()
    monitor.failed = True
    optimizer.on_epoch_end()
    optimizer.on_train_end()
    assert [gpu.limit() for gpu in virtual_v100s] == [250, 250]


def test_observing_goes_back_to_the_limit_found_where_only_lower_ones_may_be_tried(
    virtual_v100s: list[VirtualGpu],
) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), mode="observe", power_limits=[175, 150])
    assert train(optimizer)[-1] == 250
    assert optimizer.best_limit in (175, 150)
    assert optimizer.found_limit == 250
    optimizer.on_train_end()


def test_observing_goes_back_to_each_cards_own_limit(virtual_v100s: list[VirtualGpu]) -> None:
    virtual_v100s[1].set_limit(200)
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), mode="observe")
    train(optimizer)
    assert optimizer.best_limit is not None
    assert [gpu.limit() for gpu in virtual_v100s] == [250, 200]
    optimizer.on_train_end()


def test_profiling_again_without_waiting_measures_what_it_says(virtual_v100s: list[VirtualGpu]) -> None:
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), wait_steps=0, recheck=0.3)
    train(optimizer, batch_size=256)
    gpus = list(optimizer.monitor.gpus.values())
    optimizer.on_epoch_begin()
    while not optimizer.is_profiling:
        step(gpus, 64)
        optimizer.on_step_end()
    assert gpus[0].limit() == 250
    optimizer.on_epoch_end()
    optimizer.on_train_end()


@pytest.mark.parametrize("text", ["{", '{"measurements": 7}', "[]"])
def test_a_spoilt_file_in_the_folder_of_profiles_is_profiled_anew(tmp_path: Path, text: str) -> None:
    """The user named no file: nothing there may keep a training from beginning."""
    first = GlobalPowerLimitOptimizer(ZeusMonitor(), profiles=FolderProfiles(tmp_path / "profiles"))
    train(first)
    first.on_train_end()
    (file,) = (tmp_path / "profiles").iterdir()
    good = file.read_text()
    file.write_text(text if text != '{"measurements": 7}' else json.dumps(json.loads(good) | json.loads(text)))
    second = GlobalPowerLimitOptimizer(ZeusMonitor(), profiles=FolderProfiles(tmp_path / "profiles"))
    train(second)
    second.on_train_end()
    assert second.best_limit == first.best_limit
    assert json.loads(file.read_text())["measurements"]


def test_a_folder_of_profiles_that_cannot_be_read_keeps_nobody_from_training(tmp_path: Path) -> None:
    (tmp_path / "profiles").write_text("a file where a folder should be")
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), profiles=FolderProfiles(tmp_path / "profiles"))
    train(optimizer)
    assert optimizer.best_limit is not None
    optimizer.on_train_end()


def test_a_known_profile_is_still_reported_where_its_limit_can_not_be_set(
    tmp_path: Path, virtual_v100s: list[VirtualGpu]
) -> None:
    path = tmp_path / "profile.json"
    first = profiled(path)
    for gpu in virtual_v100s:
        gpu.set_limit(250)
    second = GlobalPowerLimitOptimizer(ZeusMonitor(), profile_path=path)
    for gpu in virtual_v100s:
        gpu.set_limit(100)  # an administrator is faster: now the best is above what is found
    second.on_train_begin()
    assert second.best_limit == first.best_limit
    assert second.why_not is not None
    assert virtual_v100s[0].limit() == 100
    second.on_train_end()
    assert virtual_v100s[0].limit() == 100


def test_a_run_under_a_lower_cap_keeps_what_was_measured_above_it(
    tmp_path: Path, virtual_v100s: list[VirtualGpu]
) -> None:
    path = tmp_path / "profile.json"
    first = profiled(path)
    for gpu in virtual_v100s:
        gpu.set_limit(190)
    capped = GlobalPowerLimitOptimizer(ZeusMonitor(), profile_path=path)
    train(capped)
    capped.on_train_end()
    for gpu in virtual_v100s:
        gpu.set_limit(250)
    again = GlobalPowerLimitOptimizer(ZeusMonitor(), profile_path=path)
    assert again.best_limit == first.best_limit  # known: nothing is measured again


class _Parting(RankGroup):
    """Ranks that can talk until one of them is gone."""

    gone = False

    def gather(self, value: Any) -> list[Any]:
        if self.gone:
            raise DeviceError("the ranks can no longer communicate")
        return [value]


def test_a_rank_that_is_gone_when_training_begins_leaves_no_gpu_lent(virtual_v100s: list[VirtualGpu]) -> None:
    ranks = _Parting()
    optimizer = GlobalPowerLimitOptimizer(ZeusMonitor(), group=ranks)
    ranks.gone = True
    optimizer.on_train_begin()
    assert optimizer.why_not == "the ranks can no longer communicate"
    again = lend(virtual_v100s)
    assert isinstance(again, Lease)
    again.release()


class _Twins(RankGroup):
    """Two ranks that always say the same."""

    size = 2

    def gather(self, value: Any) -> list[Any]:
        return [value, value]


def test_epochs_count_also_while_an_exception_of_something_else_is_handled(virtual_v100s: list[VirtualGpu]) -> None:
    first = GlobalPowerLimitOptimizer(ZeusMonitor(), group=_Twins())
    train(first, epochs=30, steps=2, batch_size=8)
    first.on_train_end()
    second = GlobalPowerLimitOptimizer(ZeusMonitor(), group=_Twins())
    try:
        {}["checkpoint"]
    except KeyError:  # there is none, so it trains from the start
        train(second, epochs=30, steps=2, batch_size=8)
        second.on_train_end()
    assert first.measured is not None and second.measured is not None
    assert second.measured.limits == first.measured.limits
