import pytest

from zeus.device.virtual import VirtualMachine
from zeus.monitor import ZeusMonitor
from zeus.training.training_run import TrainingRun


def test_an_evaluation_counts_in_the_energy_but_not_in_that_of_the_steps_before_it() -> None:
    machine = VirtualMachine.in_memory("v100")
    run = TrainingRun(ZeusMonitor(gpus={0: machine.gpus[0]}))
    run.epoch_begin()
    for _ in range(2):
        machine.run([0], seconds=1, watts=100)
        run.batch(samples=8)
        run.step()
    run.evaluating()
    machine.run([0], seconds=10, watts=200)
    run.log_due()  # steps that no log has shown yet are shown together with the evaluation
    values = run.energy_values()
    assert values["zeus/joules_per_step"] == pytest.approx(100)
    assert values["zeus/watts"] == pytest.approx(100)
    assert values["zeus/joules"] == pytest.approx(2200)
    run.end()
