"""Real Optuna studies on a virtual GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

optuna = pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'zeus-energy[optuna]'")

from optuna.trial import TrialState  # noqa: E402

from support.paths import EXAMPLES, SOURCES  # noqa: E402
from support.waiting import PATIENCE_SECONDS  # noqa: E402
from zeus.device.virtual import VirtualGpu  # noqa: E402
from zeus.errors import InputError  # noqa: E402
from zeus.monitor import ZeusMonitor  # noqa: E402
from zeus.tuning.optuna import CostPruner, OptunaTrial  # noqa: E402

pytestmark = pytest.mark.usefixtures("warm")

FOUND = 250.0


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(before)


def search(pruner: optuna.pruners.BasePruner | None = None) -> optuna.Study:
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), pruner=pruner or CostPruner(2.0))


def train(trial: optuna.Trial, measured: OptunaTrial, epochs: int) -> float:
    """Train for some epochs. The metric is the number of epochs, with Optuna's own reports."""
    with measured:
        for epoch in range(epochs):
            for _ in measured.steps(range(300)):
                pass
            trial.report(epoch, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
    return float(epochs)


def test_a_trial_has_its_energy_and_cost_whether_it_completes_is_pruned_or_fails(card: VirtualGpu) -> None:
    def objective(trial: optuna.Trial) -> float:
        measured = OptunaTrial(trial, "resnet", 64)
        with measured:
            for _ in measured.steps(range(400)):
                pass
            assert card.limit() < FOUND
            card.machine.run([0], seconds=5, watts=100)  # an evaluation
            if trial.number == 1:
                raise optuna.TrialPruned
            if trial.number == 2:
                raise ZeroDivisionError
        return 1.0

    study, begin = search(), card.energy()
    limits = []
    study.optimize(objective, n_trials=3, catch=ZeroDivisionError, callbacks=[lambda *_: limits.append(card.limit())])
    assert [one.state for one in study.trials] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL]
    assert limits == [FOUND] * 3
    used = [one.user_attrs["zeus/joules"] for one in study.trials]
    assert sum(used) == pytest.approx(card.energy() - begin)
    assert all(one.user_attrs["zeus/cost"] > 0 for one in study.trials)
    assert len({one.user_attrs["zeus/limit_watts"] for one in study.trials}) == 1


def test_the_pruner_stops_a_trial_at_beta_times_the_cheapest_completed_one(card: VirtualGpu) -> None:
    lengths = [4, 20, 3, 20]
    study = search(CostPruner(2.0))
    study.optimize(lambda trial: train(trial, OptunaTrial(trial, "resnet", 64), lengths[trial.number]), n_trials=4)
    states = [one.state for one in study.trials]
    assert states == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.COMPLETE, TrialState.PRUNED]
    costs = [one.user_attrs["zeus/cost"] for one in study.trials]
    assert 2 * costs[0] < costs[1] < 2.5 * costs[0]
    assert 2 * costs[2] < costs[3] < 2.5 * costs[2]


def test_the_pruner_also_asks_another_one(card: VirtualGpu) -> None:
    after_one = optuna.pruners.ThresholdPruner(upper=0.5)  # the metric is 1 after the second epoch
    study = search(CostPruner(100.0, also=after_one))
    study.optimize(lambda trial: train(trial, OptunaTrial(trial, "resnet", 64), 5), n_trials=1)
    assert study.trials[0].state is TrialState.PRUNED
    assert study.trials[0].last_step == 1


def test_a_study_may_minimise_cost(card: VirtualGpu) -> None:
    def objective(trial: optuna.Trial) -> float:
        measured = OptunaTrial(trial, "resnet", trial.suggest_categorical("batch_size", [8, 128]))
        with measured:
            for _ in measured.steps(range(20480 // trial.params["batch_size"])):  # the same samples
                pass
        return measured.cost

    study = search()
    study.optimize(objective, n_trials=6)
    assert {one.params["batch_size"] for one in study.trials} == {8, 128}
    assert study.best_params == {"batch_size": 128}
    assert study.best_value == study.best_trial.user_attrs["zeus/cost"]


def test_a_study_may_have_the_metric_and_the_cost_as_objectives(card: VirtualGpu) -> None:
    def objective(trial: optuna.Trial) -> tuple[float, float]:
        epochs = trial.suggest_int("epochs", 1, 10)
        with OptunaTrial(trial, "resnet", 64) as measured:
            for _ in range(epochs):
                for _ in measured.steps(range(200)):
                    pass
                if measured.exceeds(beta=3):
                    raise optuna.TrialPruned
        return epochs, measured.cost

    study = optuna.create_study(directions=["maximize", "minimize"], sampler=optuna.samplers.TPESampler(seed=1))
    study.optimize(objective, n_trials=15)
    done = [one for one in study.trials if one.state is TrialState.COMPLETE]
    costs = [one.values[1] for one in done]
    assert TrialState.PRUNED in {one.state for one in study.trials}
    assert all(cost <= 3.01 * min(costs[:i]) for i, cost in enumerate(costs) if i)
    assert [one.user_attrs["zeus/cost"] for one in done] == [one.values[1] for one in done]


def test_cost_as_the_objective_without_a_gpu_ends_the_study_with_a_clear_sentence(card: VirtualGpu) -> None:
    def objective(trial: optuna.Trial) -> float:
        with OptunaTrial(trial, "resnet", 64, monitor=ZeusMonitor(gpus={})) as measured:
            for _ in measured.steps(range(3)):
                pass
        return measured.cost

    study = search()
    with pytest.raises(InputError, match="the cost of this trial is not known: no GPU is visible"):
        study.optimize(objective, n_trials=3)
    assert [one.state for one in study.trials] == [TrialState.FAIL]
    assert set(study.trials[0].user_attrs) == {"zeus/seconds", "zeus/eta"}


def test_two_trials_at_a_time_do_not_fight_over_the_limit(card: VirtualGpu) -> None:
    def objective(trial: optuna.Trial) -> float:
        return train(trial, OptunaTrial(trial, "resnet", 64), 3)

    study = search(optuna.pruners.NopPruner())
    study.optimize(objective, n_trials=6, n_jobs=2)
    assert [one.state for one in study.trials] == [TrialState.COMPLETE] * 6
    refused = [one.user_attrs["zeus/why_no_limit"] for one in study.trials if "zeus/why_no_limit" in one.user_attrs]
    assert all("lease" in why for why in refused)
    assert len(refused) < 6
    assert card.limit() == FOUND


@pytest.mark.peers
def test_the_example_finds_trials_that_no_other_beats(card: VirtualGpu) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'zeus-energy[torch]'")
    paths = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "optuna_study.py")],
        env={**os.environ, "PYTHONPATH": paths},
        text=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines
    assert all(line.startswith("trial ") and " cost " in line for line in lines)
    assert card.limit() == FOUND
