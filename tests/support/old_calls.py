"""What scripts for the existing package import and call, and what each does here: the tables of docs/migrating.md.

`python tests/support/old_calls.py` prints the tables; tests/contract/compat/test_old_calls.py compares them with the
page. An entry is a few lines as such a script has them. `work` stands for its training step, `SERVER` for its server.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "migrating.md"

_BATCH_SIZE = """
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer, JobSpec
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.utils.lr_scaler import LinearScaler, SquareRootScaler
monitor = ZeusMonitor(gpu_indices=[0])
plo = GlobalPowerLimitOptimizer(monitor)
bso = BatchSizeOptimizer(monitor=monitor, server_url=SERVER, job=JobSpec(
    job_id=None, job_id_prefix="mnist-dev", default_batch_size=256, batch_sizes=[32, 64, 256, 512],
    max_epochs=10, target_metric=0.5, window_size=10))
batch_size = bso.get_batch_size()
lr = LinearScaler(bs=64, lr=0.01).compute_lr(new_bs=batch_size)
lr = SquareRootScaler(bs=64, lr=0.01).compute_lr(new_bs=batch_size)
bso.on_train_begin()
for epoch in range(10):
    plo.on_epoch_begin()
    for _ in range(5):
        plo.on_step_begin()
        work(monitor)
        plo.on_step_end()
    plo.on_epoch_end()
    bso.on_evaluate(0.2 * epoch)
    if bso.training_finished:
        break
assert bso.converged
"""
_DATA_PARALLEL = """
from zeus.callback import Callback, CallbackSet
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer, JobSpec
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
monitor = ZeusMonitor(gpu_indices=None)
bso = BatchSizeOptimizer(monitor=monitor, server_url=SERVER, rank=0, job=JobSpec(
    job_id_prefix="dp", default_batch_size=256, batch_sizes=[32, 256], max_epochs=3, target_metric=0.5))
callbacks = CallbackSet([GlobalPowerLimitOptimizer(monitor), bso])
handed_on = bso.get_batch_size(), bso.trial_number
bso.current_batch_size, bso.trial_number = handed_on
callbacks.on_train_begin()
callbacks.on_epoch_begin(); callbacks.on_step_begin(); work(monitor); callbacks.on_step_end(); callbacks.on_epoch_end()
callbacks.on_evaluate(0.9)
assert bso.training_finished
"""
_POWER_LIMIT = """
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer, MaxSlowdownConstraint
from zeus.utils.env import get_env
plo = GlobalPowerLimitOptimizer(
    monitor=ZeusMonitor(gpu_indices=[0]),
    optimum_selector=MaxSlowdownConstraint(factor=get_env("ZEUS_MAX_SLOWDOWN", float, 1.1)),
    warmup_steps=10, profile_steps=40, pl_step=25, profile_path=PROFILE)
for _ in range(3):
    plo.on_epoch_begin()
    for _ in range(5):
        plo.on_step_begin(); work(plo.monitor); plo.on_step_end()
    plo.on_epoch_end()
"""
_HUGGING_FACE = """
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import HFGlobalPowerLimitOptimizer
HFGlobalPowerLimitOptimizer(ZeusMonitor(), warmup_steps=1, profile_steps=3)
"""
EXAMPLES = {
    "`batch_size_optimizer/mnist/train_single_gpu.py`": _BATCH_SIZE,
    "`batch_size_optimizer/mnist/train_dp.py`": _DATA_PARALLEL,
    "`batch_size_optimizer/capriccio/train.py`, and sentiment analysis": _BATCH_SIZE,
    "`power_limit_optimizer/train_single.py`": _POWER_LIMIT,
    "`power_limit_optimizer/train_dp.py`, `train_fsdp.py`": _POWER_LIMIT,
    "`huggingface/run_clm.py`": _HUGGING_FACE,
    "`huggingface/run_gemma_sft_qlora.py`": _HUGGING_FACE,
    "`prometheus/train_single.py`": """
from zeus.metric import EnergyCumulativeCounter, EnergyHistogram, PowerGauge
histogram = EnergyHistogram(cpu_indices=[], gpu_indices=[0], pushgateway_url=GATEWAY, job="histogram")
gauge = PowerGauge(gpu_indices=[0], update_period=2, pushgateway_url=GATEWAY, job="gauge")
counter = EnergyCumulativeCounter(cpu_indices=[], gpu_indices=[0], update_period=2, pushgateway_url=GATEWAY, job="sum")
gauge.begin_window("epoch_power")
counter.begin_window("epoch_energy")
histogram.begin_window("training_energy")
histogram.end_window("training_energy")
counter.end_window("epoch_energy")
gauge.end_window("epoch_power")
""",
    "`carbon_emission_monitor/run_clm.py`": """
from zeus.utils.lat_lon import get_ip_lat_long
get_ip_lat_long()
""",
    "`jax/measure_energy.py`": """
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor(gpu_indices=[0], sync_execution_with="jax")
monitor.begin_window("all_computations")
measurement = monitor.end_window("all_computations")
assert measurement.time >= 0 and set(measurement.gpu_energy) == {0}
""",
    "`pipeline_frequency_optimizer/run_optimization.py`": """
from zeus.optimizer.pipeline_frequency.common import ProfilingResult
""",
    "`research_reproducibility/zeus_nsdi23/run_single.py`": """
from zeus._legacy.policy.optimizer import JITPowerLimitOptimizer, PruningGTSBatchSizeOptimizer
""",
    "`research_reproducibility/zeus_nsdi23/run_alibaba.py`": """
from zeus._legacy.simulate import HistoryEntry, Simulator
""",
}
CALLS = {
    "`zeus.monitor.energy`: `ZeusMonitor`, `Measurement`": """
from zeus.monitor.energy import Measurement, ZeusMonitor
""",
    "`ZeusMonitor(cpu_indices=[0])` where there is no RAPL": """
from zeus.monitor import ZeusMonitor
try:
    ZeusMonitor(cpu_indices=[99])
except RuntimeError:
    pass
""",
    '`ZeusMonitor(sync_execution_with="cupy")`': """
from zeus.monitor import ZeusMonitor
monitor = ZeusMonitor(gpu_indices=[0], sync_execution_with="cupy")
monitor.begin_window("w"); monitor.end_window("w")
""",
    "`zeus.monitor.power.PowerMonitor`, `get_all_power_timelines()`, `get_power(power_domain=)`": """
from zeus.monitor.power import PowerDomain, PowerMonitor
monitor = PowerMonitor(gpu_indices=[0], update_period=0.1)
assert set(monitor.get_all_power_timelines()) == {"device_instant", "device_average", "memory_average"}
monitor.get_power(power_domain=PowerDomain.DEVICE_AVERAGE)
monitor.get_power(power_domain="device_instant")
monitor.stop()
""",
    "`zeus.monitor.temperature.TemperatureMonitor`": """
from zeus.monitor.temperature import TemperatureMonitor
TemperatureMonitor(gpu_indices=[0]).stop()
""",
    "`zeus.monitor.power_streaming.PowerStreamingClient`": """
from zeus.monitor.power_streaming import PowerStreamingClient
""",
    "`zeus.device.get_gpus()`: names, limits, power, energy, temperature": """
from zeus.device import get_gpus
gpus = get_gpus(ensure_homogeneous=True)
low, high = gpus.get_power_management_limit_constraints(0)
gpus.set_power_management_limit(0, low)
assert gpus.get_power_management_limit(0) == low
gpus.reset_power_management_limit(0)
gpus.get_name(0), gpus.get_instant_power_usage(0), gpus.get_total_energy_consumption(0), gpus.get_gpu_temperature(0)
""",
    "`zeus.device.get_gpus().set_gpu_locked_clocks(...)`": """
from zeus.device import get_gpus
get_gpus().set_gpu_locked_clocks(0, 300, 900)
""",
    "`zeus.device.gpu.common`, `.nvidia`, `.amd`": """
from zeus.device.gpu import GPUs
from zeus.device.gpu.amd import AMDGPUs, amdsmi_is_available
from zeus.device.gpu.common import GPU, ZeusGPUInitError, ZeusGPUNoPermissionError
from zeus.device.gpu.nvidia import NVIDIAGPUs, nvml_is_available
nvml_is_available()
""",
    "`zeus.device.get_cpus()`, `zeus.device.cpu.rapl`": """
from zeus.device import get_cpus
from zeus.device.cpu.rapl import RAPLCPUs, rapl_is_available
if rapl_is_available():
    get_cpus().get_total_energy_consumption(0)
""",
    "`zeus.device.get_soc()`": """
from zeus.device import get_soc
get_soc()
""",
    "`zeus.profile.measure(...)`, `profile_parameters(...)`": """
from zeus.monitor import ZeusMonitor
from zeus.profile import measure, profile_cooldown_duration, profile_measurement_duration, profile_parameters
monitor = ZeusMonitor(gpu_indices=[0])
result = measure(lambda: work(monitor), monitor, measurement_duration=2.0, cooldown_duration=1.0)
assert result.energy_per_iter > 0
profile_parameters(lambda: work(monitor), monitor, [1.0, 2.0], [1.0], num_trials=2, num_calibration_iterations=3)
""",
    "`zeus.utils.framework`: `get_rank`, `all_reduce`, `sync_execution`, ...": """
from zeus.utils.framework import all_reduce, get_rank, get_world_size, is_distributed, sync_execution
assert (get_rank(), get_world_size(), is_distributed(), all_reduce([1.0], "sum")) == (0, 1, False, [1.0])
sync_execution([0], sync_with="torch")
""",
    "`zeus.utils.zeusd.ZeusdClient`": """
from zeus.utils.zeusd import ZeusdClient
""",
    "`zeus.callback.Callback.on_instruction_begin(name)`, `on_instruction_end(name)`": """
from zeus.callback import Callback, CallbackSet
CallbackSet([Callback()]).on_instruction_begin("forward")
CallbackSet([Callback()]).on_instruction_end("forward")
""",
    "`zeus.optimizer.GlobalPowerLimitOptimizer`": """
from zeus.optimizer import GlobalPowerLimitOptimizer
""",
    "`zeus.optimizer.batch_size.client`, `.common`, `.exceptions`": """
from zeus.optimizer.batch_size.client import BatchSizeOptimizer
from zeus.optimizer.batch_size.common import JobSpec, ReportResponse, TrainingResult, TrialId
from zeus.optimizer.batch_size.exceptions import ZeusBSORuntimError, ZeusBSOTrainFailError
""",
    "`zeus.optimizer.batch_size.server`": """
from zeus.optimizer.batch_size.server.router import app
""",
    "`BatchSizeOptimizer.trial_number`, `.current_batch_size`, `.job`, `.server_url`, `.max_power`, ...": """
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer, JobSpec
bso = BatchSizeOptimizer(ZeusMonitor([0]), SERVER, JobSpec(
    job_id_prefix="names", default_batch_size=8, batch_sizes=[8, 16]), rank=0)
assert (bso.trial_number, bso.current_batch_size, bso.cur_epoch, bso.running_window) == (0, 0, 0, False)
assert bso.job.job_id.startswith("names") and bso.server_url == SERVER and bso.rank == 0 and bso.max_power == 250
bso.get_batch_size(); bso.on_train_begin()
assert (bso.trial_number, bso.current_batch_size, bso.running_window) == (1, 8, True)
bso.on_train_end()
""",
    "`JobSpec(beta_knob=None)`": """
from zeus.optimizer.batch_size import JobSpec
JobSpec(job_id_prefix="no-bound", default_batch_size=8, batch_sizes=[8, 16], beta_knob=None)
""",
    "`zeus.optimizer.pipeline_frequency.PipelineFrequencyOptimizer`": """
from zeus.optimizer.pipeline_frequency import PipelineFrequencyOptimizer
""",
}


def outcome(code: str, folder: Path) -> str:
    """What a script with this code does here: `runs`, or the error that it ends with."""
    from zeus.device.virtual import step

    names: dict[str, Any] = {
        "SERVER": f"sqlite:///{folder}/zeus.db",
        "PROFILE": str(folder / "profile.json"),
        "GATEWAY": "http://127.0.0.1:9",  # nobody listens there
        "work": lambda monitor: step(monitor.gpus.values(), 256),
    }
    try:
        exec(compile(code, "a script", "exec"), names)
    except Exception as failed:
        return f"{type(failed).__name__}: {failed}"
    return "runs"


def table(head: str, calls: dict[str, str], folder: Path) -> str:
    """A table for the page."""
    rows = []
    for number, (what, code) in enumerate(calls.items()):
        place = folder / str(number)
        place.mkdir()
        rows.append(f"| {what} | {outcome(code, place)} |")
    return "\n".join([f"| {head} | here |", "|---|---|", *rows]) + "\n"


def tables(folder: Path) -> dict[str, str]:
    """Both tables, by the name of their place on the page."""
    found = {}
    for name, head, calls in (("examples", "example", EXAMPLES), ("calls", "call", CALLS)):
        (folder / name).mkdir()
        found[name] = table(head, calls, folder / name)
    return found


def settings(folder: Path) -> dict[str, str]:
    """The environment in which the tables are made: one virtual card, and nothing of this machine."""
    return {
        "ZEUS_GPU": "virtual:v100?clock=virtual",
        "ZEUS_VIRTUAL_STATE": str(folder / "cards"),
        "ZEUS_KEEPER_STATE": str(folder / "keeper"),
        "XDG_RUNTIME_DIR": str(folder),
        "XDG_DATA_HOME": str(folder),
        "ZEUS_QUIET": "1",
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        os.environ.update(settings(Path(made)))
        for one in tables(Path(made)).values():
            sys.stdout.write(one + "\n")
