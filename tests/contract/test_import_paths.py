"""Every import path that a script may have: those of the docs and examples, and those that users know.

tests/journey/test_package.py has those that we promise, which are not repeated here.
"""

from __future__ import annotations

import importlib
import re

from support.paths import EXAMPLES, ROOT

LINE = re.compile(r"from (zeus[\w.]*) import \(?([\w, ]+)")
WRITTEN = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", *EXAMPLES.rglob("*.py")])
KNOWN = {  # by users of the existing package, or in our documentation
    "zeus.device": ["get_cpus", "get_gpus", "get_soc"],
    "zeus.job": ["Ending", "Gpus", "JobSpec", "Outcome"],
    "zeus.launch.recurrence": ["recur"],
    "zeus.monitor.carbon": ["CarbonEmissionMeasurement", "CarbonEmissionMonitor", "CarbonIntensityProvider"],
    "zeus.monitor.energy": ["Measurement", "ZeusMonitor"],
    "zeus.monitor.price": ["ElectricityPriceProvider", "EnergyCostMeasurement", "EnergyCostMonitor"],
    "zeus.optimizer": ["GlobalPowerLimitOptimizer"],
    "zeus.optimizer.power_limit": ["HFGlobalPowerLimitOptimizer"],
    "zeus.profile": ["PowerProfile", "ProfileKey", "measure", "profile_parameters"],
    "zeus.show_env": ["show_env"],
    "zeus.simulate": ["drift", "regret", "virtual"],
    "zeus.simulate.cluster": ["Knobs", "simulate"],
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


def test_a_name_that_users_know_is_where_they_know_it() -> None:
    for module in KNOWN:
        importlib.import_module(module)
    assert [(module, name) for module, names in KNOWN.items() for name in names if not has(module, name)] == []


def test_what_a_page_or_example_imports_is_there() -> None:
    said = [
        (page.name, module, name.strip().partition(" as ")[0])
        for page in WRITTEN
        for module, names in LINE.findall(page.read_text())
        for name in names.split(",")
        if name.strip()
    ]
    assert len(said) > 50
    assert [one for one in said if not has(*one[1:])] == []
