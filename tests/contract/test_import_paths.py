"""Every import path that a script may have: those of the docs and examples, of 0.1, and those that users know."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from support.paths import EXAMPLES, ROOT

LINE = re.compile(r"from (zeus[\w.]*) import \(?([\w, ]+)")
WRITTEN = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *EXAMPLES.rglob("*.py")])
KNOWN = {  # by users of the existing package, or in the documentation of Zeus 0.1
    "zeus": ["ZeusDataLoader"],
    "zeus.callback": ["Callback", "CallbackSet"],
    "zeus.device": ["get_cpus", "get_gpus", "get_soc"],
    "zeus.device.find": ["find"],
    "zeus.device.keeper": ["Lease", "Observing", "lend"],
    "zeus.device.virtual": ["VirtualMachine", "step", "virtual_gpus"],
    "zeus.job": ["Ending", "Gpus", "JobSpec", "Outcome"],
    "zeus.launch.recurrence": ["recur"],
    "zeus.monitor": ["Measurement", "PowerMonitor", "TemperatureMonitor", "ZeusMonitor"],
    "zeus.monitor.carbon": ["CarbonEmissionMeasurement", "CarbonEmissionMonitor", "CarbonIntensityProvider"],
    "zeus.monitor.energy": ["Measurement", "ZeusMonitor"],
    "zeus.monitor.price": ["ElectricityPriceProvider", "EnergyCostMeasurement", "EnergyCostMonitor"],
    "zeus.optimizer": ["GlobalPowerLimitOptimizer"],
    "zeus.optimizer.batch_size": ["BatchSizeOptimizer", "JobSpec"],
    "zeus.optimizer.batch_size.local": ["LocalJob"],
    "zeus.optimizer.batch_size.policy": ["find_policy"],
    "zeus.optimizer.power_limit": [
        "Energy",
        "GlobalPowerLimitOptimizer",
        "HFGlobalPowerLimitOptimizer",
        "MaxSlowdownConstraint",
        "OptimumSelector",
        "PowerLimitMeasurement",
        "Time",
        "ZeusCost",
    ],
    "zeus.profile": ["PowerProfile", "ProfileKey", "measure", "profile_parameters"],
    "zeus.show_env": ["show_env"],
    "zeus.simulate": ["drift", "regret", "virtual"],
    "zeus.simulate.cluster": ["Knobs", "simulate"],
    "zeus.simulate.cluster_match": ["match"],
    "zeus.simulate.cluster_traces": ["collect"],
    "zeus.simulate.replay": ["job_of", "replay"],
    "zeus.store": ["open_store"],
    "zeus.store.memory": ["MemoryStore"],
    "zeus.training.huggingface": ["BatchSizeCallback", "EnergyCallback"],
    "zeus.training.lightning": ["BatchSizeCallback", "EnergyCallback"],
    "zeus.utils.lr_scaler": [],
}


def has(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("module", KNOWN)
def test_a_name_that_users_know_is_where_they_know_it(module: str) -> None:
    importlib.import_module(module)
    assert [name for name in KNOWN[module] if not has(module, name)] == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_or_example_imports_is_there(page: Path) -> None:
    said = [(module, name.strip()) for module, names in LINE.findall(page.read_text()) for name in names.split(",")]
    assert [one for one in said if one[1] and not has(one[0], one[1].partition(" as ")[0])] == []
