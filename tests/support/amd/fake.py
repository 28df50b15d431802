"""AMD cards for tests: the state that the small amdsmi beside this file reads, and the environment that leads to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from zeus.device.amd import GONE, AmdGpu, amd_gpus

AMDSMI = Path(__file__).parent

MI300X: dict[str, Any] = {
    "get_gpu_device_uuid": "e8ff74a1-0000-1000-8012-000000000001",
    "get_gpu_device_bdf": "0000:0c:00.0",
    "get_gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
    "get_energy_count": {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1},
    "get_power_info": {"current_socket_power": 137, "average_socket_power": "N/A"},
    "get_power_cap_info": {
        "power_cap": 750_000_000,
        "default_power_cap": 750_000_000,
        "min_power_cap": 250_000_000,
        "max_power_cap": 750_000_000,
    },
    "set_power_cap": None,
    "get_temp_metric:HOTSPOT": 41,
    "get_gpu_process_list": [{"pid": 4711, "name": "python"}],
}


class Machine:
    """The state that the small amdsmi reads, and the environment that leads to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environ = {"ZEUS_GPU": "amd"}

    def has(self, *cards: dict[str, Any], **more: Any) -> None:
        self.path.write_text(json.dumps({"cards": cards, **more}))

    def change(self, **answers: Any) -> None:
        """What the first card answers from here on."""
        state = json.loads(self.path.read_text())
        state["cards"][0].update(answers)
        self.path.write_text(json.dumps(state))

    def wait(self, seconds: float) -> None:
        """Time passes for the first card's counter."""
        count = json.loads(self.path.read_text())["cards"][0]["get_energy_count"]
        ticks = round(137 * seconds * 1e6 / count["counter_resolution"])
        self.change(get_energy_count={**count, "energy_accumulator": count["energy_accumulator"] + ticks})

    def lose(self) -> None:
        """The first card falls off the bus: whatever it is asked, there is no such device."""
        names = json.loads(self.path.read_text())["cards"][0]
        self.change(**{name: {"error": min(GONE)} for name in names})

    def gpu(self, **changes: Any) -> AmdGpu:
        self.has({**MI300X, **changes})
        return amd_gpus()[0]


@pytest.fixture
def amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("ZEUS_TEST_AMDSMI", str(tmp_path / "amdsmi.json"))
    monkeypatch.delenv("ZEUS_READ_ONLY", raising=False)
    monkeypatch.syspath_prepend(str(AMDSMI))
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    built = Machine(tmp_path / "amdsmi.json")
    built.has(MI300X, {**MI300X, "get_gpu_device_uuid": "e8ff74a1-0000-1000-8012-000000000002"})
    return built
