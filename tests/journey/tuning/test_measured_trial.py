"""One trial of a search on a virtual GPU: what it used, the limit it ran at, and the profile that trials share."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import zeus
from zeus.device.virtual import VirtualGpu, VirtualMachine
from zeus.errors import InputError
from zeus.monitor import ZeusMonitor
from zeus.tuning.measured_trial import MeasuredTrial

pytestmark = pytest.mark.usefixtures("warm")

FOUND = 250.0


def train(measured: MeasuredTrial, card: VirtualGpu, steps: int = 400, epochs: int = 2) -> list[float]:
    """The limits in force during the steps, in the order in which they were set."""
    limits = []
    with measured:
        for _ in range(epochs):
            for _ in measured.steps(range(steps)):
                if not limits or limits[-1] != card.limit():
                    limits.append(card.limit())
    return limits


def test_what_a_trial_used_is_what_the_card_counted(card: VirtualGpu) -> None:
    joules, begin = card.energy(), card.clock.now()
    measured = MeasuredTrial("resnet", 64, eta=0.3)
    train(measured, card)
    assert measured.use.joules == pytest.approx(card.energy() - joules)
    assert measured.use.seconds == pytest.approx(card.clock.now() - begin)
    assert measured.cost == pytest.approx(0.3 * measured.use.joules + 0.7 * 250 * measured.use.seconds)
    assert measured.values() == {
        "zeus/joules": measured.use.joules,
        "zeus/seconds": measured.use.seconds,
        "zeus/cost": measured.cost,
        "zeus/limit_watts": measured.optimizer.best_limit,
        "zeus/eta": 0.3,
        "zeus/gpus": "1 x Tesla V100-PCIE-32GB",
    }


def test_a_loader_that_tells_virtual_gpus_of_its_steps_is_not_told_for_again(card: VirtualGpu) -> None:
    torch = pytest.importorskip("torch", reason="needs `pip install torch`")
    data = torch.utils.data.TensorDataset(torch.zeros(6400, 1))
    times = []
    for loader in (range(100), zeus.ZeusDataLoader(data, 64)):
        began = card.clock.now()
        with MeasuredTrial("resnet", 64, mode="off") as measured:
            for _ in measured.steps(loader):
                pass
        times.append(card.clock.now() - began)
    assert times[1] == pytest.approx(times[0])


def test_an_evaluation_counts_too_and_nothing_after_the_block(card: VirtualGpu) -> None:
    with MeasuredTrial("resnet", 64) as measured:
        for _ in measured.steps(range(10)):
            pass
        trained = measured.use.joules
        card.machine.run([0], seconds=5, watts=100)
        assert measured.use.joules == pytest.approx(trained + 500)
    card.machine.run([0], seconds=5, watts=100)
    assert measured.use.joules == pytest.approx(trained + 500)


def test_the_second_trial_profiles_nothing(card: VirtualGpu) -> None:
    first = train(MeasuredTrial("resnet", 64), card)
    assert len(first) > 2
    assert first[0] == FOUND
    second = MeasuredTrial("resnet", 64)
    assert train(second, card) == [first[-1]]
    assert second.limit_watts == first[-1] < FOUND
    assert card.limit() == FOUND


def test_trials_that_are_too_short_to_profile_continue_where_the_last_one_stopped(card: VirtualGpu) -> None:
    seen: list[float] = []
    for _ in range(30):
        measured = MeasuredTrial("resnet", 64)
        seen += train(measured, card, steps=20, epochs=1)
        if measured.optimizer.profile is not None:
            break
    assert measured.optimizer.profile is not None
    assert measured.optimizer.measured == measured.optimizer.profile
    assert train(MeasuredTrial("resnet", 64), card) == [measured.optimizer.best_limit]
    assert len(set(seen)) > 2


def test_another_model_or_batch_size_is_profiled_for_itself(card: VirtualGpu) -> None:
    train(MeasuredTrial("resnet", 64), card)
    assert len(train(MeasuredTrial("resnet-wide", 64), card)) > 2
    assert len(train(MeasuredTrial("resnet", 32), card)) > 1


def test_the_limit_is_restored_and_the_energy_known_after_a_failure(card: VirtualGpu) -> None:
    measured = MeasuredTrial("resnet", 64)
    limits = []
    with pytest.raises(ZeroDivisionError), measured:
        for batch in measured.steps(range(400)):
            limits.append(card.limit())
            if batch == 300:
                raise ZeroDivisionError
    assert limits[-1] < FOUND
    assert card.limit() == FOUND
    assert measured.values()["zeus/joules"] > 0  # type: ignore[operator]


def test_a_second_trial_on_the_same_card_leaves_its_limit_alone(card: VirtualGpu) -> None:
    train(MeasuredTrial("resnet", 64), card)
    with MeasuredTrial("resnet", 64) as one:
        lowered = card.limit()
        with MeasuredTrial("resnet", 64) as other:
            for _ in other.steps(range(100)):
                assert card.limit() == lowered
        assert "lease" in str(other.values()["zeus/why_no_limit"])
        assert card.limit() == lowered == one.limit_watts == other.limit_watts
    assert card.limit() == FOUND


def test_off_measures_and_sets_nothing(card: VirtualGpu) -> None:
    measured = MeasuredTrial("resnet", 64, mode="off")
    assert train(measured, card) == [FOUND]
    assert measured.values()["zeus/limit_watts"] == FOUND
    assert measured.cost > 0


def test_profiles_can_be_kept_elsewhere(card: VirtualGpu, tmp_path: Path) -> None:
    train(MeasuredTrial("resnet", 64, profiles=tmp_path / "mine"), card)
    assert len([*(tmp_path / "mine").glob("resnet__64__*.json")]) == 1
    assert not (tmp_path / "data" / "zeus" / "tuning").exists()


def test_without_a_gpu_the_energy_is_absent_and_the_cost_cannot_be_an_objective(card: VirtualGpu) -> None:
    measured = MeasuredTrial("resnet", 64, monitor=ZeusMonitor(gpus={}))
    with measured:
        for _ in measured.steps(range(3)):
            pass
    assert set(measured.values()) == {"zeus/seconds", "zeus/eta"}
    with pytest.raises(InputError, match=r"the cost of this trial is not known: no GPU is visible .* objective"):
        _ = measured.cost


def test_an_energy_that_gets_lost_is_absent(card: VirtualGpu) -> None:
    machine = VirtualMachine.in_memory("v100")
    with MeasuredTrial("resnet", 64, mode="off", monitor=ZeusMonitor(gpus={0: machine.gpus[0]})) as measured:
        machine.lose(0)
    assert math.isnan(measured.use.joules)
    assert "zeus/joules" not in measured.values()
    assert "zeus/cost" not in measured.values()
    with pytest.raises(InputError, match="does not report its energy"):
        _ = measured.cost


def test_a_trial_is_measured_once_and_inside_its_block(card: VirtualGpu) -> None:
    measured = MeasuredTrial("resnet", 64)
    with pytest.raises(InputError, match="`with` block"):
        measured.steps([])
    train(measured, card, steps=1)
    with pytest.raises(InputError, match="measured already"):
        measured.__enter__()
    with pytest.raises(InputError, match="`with` block"):
        measured.steps([])


@pytest.mark.parametrize("wrong", [{"model": ""}, {"batch_size": 0}, {"batch_size": 1.5}, {"eta": 2}, {"mode": "fast"}])
def test_bad_arguments_are_refused_before_anything_begins(card: VirtualGpu, wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"model": "resnet", "batch_size": 64, **wrong}
    with pytest.raises(InputError, match=next(iter(wrong))):
        MeasuredTrial(**arguments)  # type: ignore[arg-type]
