"""The power limit's names that users of the existing package know, called as they call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.call_shapes import check_call_shape
from support.cards import RESNET_X2, VirtualCards
from zeus.callback import Callback, CallbackSet
from zeus.device.virtual import VirtualGpu, step
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
from zeus.utils.lr_scaler import LinearScaler, SquareRootScaler

CALLS = ["on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_step_begin", "on_step_end"]
PARAMETERS: dict[Any, list[str]] = {
    PowerLimitMeasurement: ["power_limit", "energy", "time"],
    OptimumSelector.select: ["self", "measurements"],
    Energy: [],
    Time: [],
    ZeusCost: ["eta_knob", "world_size"],
    MaxSlowdownConstraint: ["factor"],
    GlobalPowerLimitOptimizer: [
        *("monitor", "optimum_selector", "wait_steps", "warmup_steps", "profile_steps", "pl_step", "profile_path")
    ],
    Callback.on_evaluate: ["self", "metric"],
    CallbackSet: ["callbacks"],
    SquareRootScaler: ["bs", "lr"],
    SquareRootScaler.compute_lr: ["self", "new_bs"],
    LinearScaler: ["bs", "lr"],
}
DEFAULTS: dict[Any, tuple[Any, ...]] = {
    GlobalPowerLimitOptimizer: (None, 1, 10, 40, 25, None),
    ZeusCost: (1,),
}
CURVE = [
    PowerLimitMeasurement(300, 2053.7, 9.2),
    PowerLimitMeasurement(power_limit=200, energy=1600.0, time=9.9),
    PowerLimitMeasurement(100, 1500.0, 14.0),
]


@pytest.fixture(autouse=True)
def cards(virtual_cards: VirtualCards) -> list[VirtualGpu]:
    return virtual_cards(RESNET_X2)


@pytest.mark.parametrize("name", PARAMETERS, ids=lambda name: name.__qualname__)
def test_positional_parameters_keep_their_names_and_order(name: Any) -> None:
    check_call_shape(name, PARAMETERS[name], DEFAULTS.get(name))


def test_selectors_as_scripts_use_them() -> None:
    assert Energy().select(CURVE) == 100
    assert Time().select(CURVE) == 300
    assert ZeusCost(0.5, 1).select(CURVE) == ZeusCost(eta_knob=0.5, world_size=1).select(measurements=CURVE) == 200
    assert MaxSlowdownConstraint(1.1).select(CURVE) == MaxSlowdownConstraint(factor=1.1).select(CURVE) == 200
    assert all(isinstance(s.select(CURVE), int) for s in (Energy(), Time(), ZeusCost(0.5), MaxSlowdownConstraint(2)))


def test_a_selector_asked_twice_forgets_the_first_curve() -> None:
    selector = ZeusCost(0.5)
    small = [PowerLimitMeasurement(3, 20.537, 9.2), PowerLimitMeasurement(1, 15.0, 14.0)]
    selector.select(small)
    close = [PowerLimitMeasurement(300, 2053.7, 9.2), PowerLimitMeasurement(100, 1500.0, 14.0)]
    assert selector.select(close) == ZeusCost(0.5).select(close) == 300


def test_callbacks_do_nothing_unless_overridden_and_sets_tell_all_in_order() -> None:
    heard: list[str] = []

    class Listener(Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_step_end(self) -> None:
            heard.append(self.name)

        def on_evaluate(self, metric: float) -> None:
            heard.append(f"{self.name} {metric}")

    everyone = CallbackSet([Callback(), Listener("a"), Listener("b")])
    for call in CALLS:
        assert getattr(everyone, call)() is None
    everyone.on_instruction_begin("forward")
    everyone.on_instruction_end(name="forward")
    everyone.on_evaluate(0.5)
    everyone.on_evaluate(metric=0.6)
    assert heard == ["a", "b", "a 0.5", "b 0.5", "a 0.6", "b 0.6"]


def test_a_script_written_for_the_existing_package_runs(cards: list[VirtualGpu], tmp_path: Path) -> None:
    """All arguments by position, one callback set, and nobody calls on_train_begin or on_train_end."""
    monitor = ZeusMonitor(gpu_indices=[0, 1], approx_instant_energy=True)
    path = str(tmp_path / "profile.json")
    optimizer = GlobalPowerLimitOptimizer(monitor, MaxSlowdownConstraint(1.2), 1, 10, 40, 25, path)
    callbacks = CallbackSet([optimizer])
    for _ in range(10):
        callbacks.on_epoch_begin()
        for _ in range(60):
            callbacks.on_step_begin()
            step(monitor.gpus.values(), 256)
            callbacks.on_step_end()
        callbacks.on_epoch_end()
        callbacks.on_evaluate(0.5)
    assert [card.limit() for card in cards] == [optimizer.best_limit] * 2
    assert cards[0].limit() < 250
    rows = json.loads(Path(path).read_text())["measurements"]
    measured = [PowerLimitMeasurement(row["power_limit"], row["energy"], row["time"]) for row in rows]
    assert all(isinstance(m.power_limit, int) for m in measured)
    optimizer.on_train_end()
    assert [card.limit() for card in cards] == [250, 250]


def test_the_default_selector_weighs_all_gpus() -> None:
    selector = GlobalPowerLimitOptimizer(ZeusMonitor()).selector
    assert isinstance(selector, ZeusCost)
    assert (selector.eta_knob, selector.world_size, selector.max_watts) == (0.5, 2, 500.0)


def test_the_hugging_face_callback_takes_the_same_arguments(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer

    monitor = ZeusMonitor()
    by_position = HFGlobalPowerLimitOptimizer(monitor, Energy(), 2, 5, 20, 50, str(tmp_path / "profile.json"))
    by_name = HFGlobalPowerLimitOptimizer(
        monitor=monitor, optimum_selector=Time(), wait_steps=1, warmup_steps=10, profile_steps=40, pl_step=25
    )
    assert isinstance(by_position, transformers.TrainerCallback)
    assert isinstance(by_position.optimizer.selector, Energy)
    assert isinstance(by_name.optimizer.selector, Time)
    with pytest.raises(TypeError):
        HFGlobalPowerLimitOptimizer()
