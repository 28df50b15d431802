"""What a user gets by importing Zeus: little is loaded, nothing runs, and the public names are these."""

from __future__ import annotations

import importlib
import json
from types import ModuleType

import pytest

from support.paths import SOURCES
from support.programs import run_python

HEAVY = {
    "torch",
    "numpy",
    "scipy",
    "pandas",
    "click",
    "rich",
    "pynvml",
    "amdsmi",
    "psycopg",
    "httpx",
    "fastapi",
    "regex",
}

# Taking a name away breaks somebody's script: it is deprecated first, for two minor versions.
PUBLIC = {
    "zeus": ["ZeusDataLoader", "__version__"],
    "zeus.errors": [
        "AlreadyDone",
        "DeviceError",
        "DeviceLost",
        "DeviceSilent",
        "EngineError",
        "Forbidden",
        "InputError",
        "KeeperLost",
        "LaunchError",
        "LeaseRefused",
        "NoCpuEnergy",
        "NoDevice",
        "NotAllowed",
        "NotHere",
        "NotInstalled",
        "NotKnown",
        "StoreUnusable",
        "NotPermitted",
        "ReadOnly",
        "Refused",
        "StoreError",
        "Unsupported",
        "WindowError",
        "ZeusError",
        "exit_status",
        "suggest",
    ],
    "zeus.monitor": [
        "Measurement",
        "PowerDomain",
        "PowerMonitor",
        "Source",
        "TemperatureMonitor",
        "Window",
        "ZeusMonitor",
    ],
    "zeus.tariff": ["Footprint", "HourlyRate", "Prices", "Rate", "prices", "read_rate"],
    "zeus.device": [],
    "zeus.callback": ["Callback", "CallbackSet"],
    "zeus.optimizer.batch_size": ["BatchSizeOptimizer", "JobSpec"],
    "zeus.optimizer.power_limit": [
        "Energy",
        "GlobalPowerLimitOptimizer",
        "MaxSlowdownConstraint",
        "OptimumSelector",
        "PowerLimitMeasurement",
        "Time",
        "ZeusCost",
    ],
    "zeus.tuning.measured_trial": ["MeasuredTrial"],
    "zeus.tuning.optuna": ["CostPruner", "OptunaTrial"],
    "zeus.tuning.ray_tune": ["CostStopper", "RayTrial"],
    "zeus.device.find": ["find", "machine", "mine", "no_gpu", "torch_uuids", "why_none"],
    "zeus.device.gpu": [
        "Capability",
        "Clock",
        "Gpu",
        "GpuSpec",
        "PowerSample",
        "Ticker",
        "abilities",
        "check_limit",
        "check_power",
        "lowest_limit",
        "refuse_if_read_only",
        "works",
    ],
    "zeus.device.keeper": ["Lease", "Observing", "lend", "permitted", "status"],
    "zeus.device.virtual": ["VirtualGpu", "VirtualMachine", "step", "virtual_gpus"],
}
COMMANDS = [
    "demo",
    "digest",
    "doctor",
    "env",
    "export",
    "jobs",
    "keeper",
    "logs",
    "measure",
    "monitor",
    "profile",
    "reproduce",
    "restore",
    "run",
    "serve",
    "simulate",
    "store",
    "token",
]

REPORT = """
import json, sys, threading
print(json.dumps({"modules": sorted(m.partition(".")[0] for m in sys.modules), "threads": threading.active_count()}))
"""


def loaded_by(code: str) -> tuple[set[str], int]:
    """Run this in a new interpreter: the packages it has loaded at the end, and how many threads run."""
    report = json.loads(run_python("-c", code + REPORT).stdout.splitlines()[-1])
    return set(report["modules"]), report["threads"]


def public_names(module: ModuleType) -> list[str]:
    """Those it lists; where it lists none, those it defines."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    here = module.__name__
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == here
    )


def test_importing_zeus_loads_nothing_heavy_and_starts_no_thread() -> None:
    modules, threads = loaded_by("import zeus")
    assert modules & HEAVY == set()
    assert threads == 1


def test_importing_the_monitor_needs_no_framework_and_starts_no_thread() -> None:
    modules, threads = loaded_by("import zeus.monitor")
    assert modules & HEAVY == set()
    assert threads == 1


def test_help_is_printed_without_loading_any_command() -> None:
    modules, _ = loaded_by(
        "from zeus.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit as end:\n    assert not end.code"
    )
    assert "click" in modules
    assert modules & (HEAVY - {"click"}) == set()


def test_public_names_are_those_that_we_promised() -> None:
    for name, promised in PUBLIC.items():
        module = importlib.import_module(name)
        assert public_names(module) == sorted(promised), name
        assert all(hasattr(module, public) for public in promised), name


def test_commands_are_those_that_we_promised() -> None:
    from zeus.cli import main

    assert sorted(main.COMMANDS) == COMMANDS


@pytest.mark.usefixtures("warm_frameworks")  # which take ten times as long to import as Zeus does
def test_importing_any_module_prints_nothing_and_starts_no_thread() -> None:
    here = SOURCES / "zeus"
    files = [file for file in sorted(here.rglob("*.py")) if file.name != "__main__.py"]
    names = [".".join(file.relative_to(SOURCES).with_suffix("").parts).removesuffix(".__init__") for file in files]
    code = (
        "import importlib, sys, threading\n"
        "for name in [name for name in sys.modules if name.partition('.')[0] == 'zeus']: del sys.modules[name]\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "assert threading.active_count() == 1, threading.enumerate()"
    )
    done = run_python("-c", code, *names)
    assert (done.stdout, done.stderr) == ("", "")
