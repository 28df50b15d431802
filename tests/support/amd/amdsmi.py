"""A small amdsmi whose cards live in the JSON file named by ZEUS_TEST_AMDSMI, for tests of zeus.device.amd.

    {"broken": false, "cards": [{"<function without the amdsmi_ prefix>": <answer>, ...}, ...]}

An answer {"error": 2} raises that status; a function that a card does not list raises "not supported".
"""

from __future__ import annotations

import json
import os
from enum import IntEnum
from pathlib import Path
from typing import Any


def _state() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(Path(os.environ["ZEUS_TEST_AMDSMI"]).read_text())
    return answer


if "ZEUS_TEST_AMDSMI" in os.environ and _state().get("broken"):
    print("libamd_smi.so: cannot open shared object file")
    os.write(1, b"noise from a C library\n")
    raise KeyError("libamd_smi.so")


class AmdSmiException(Exception):
    pass


class AmdSmiLibraryException(AmdSmiException):
    def __init__(self, err_code: int) -> None:
        super().__init__(err_code)
        self.err_code = err_code

    def __str__(self) -> str:
        return f"Error code:\n\t{self.err_code} | AMDSMI_STATUS"


class AmdSmiTemperatureType(IntEnum):
    EDGE = 0
    HOTSPOT = 1


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


def _answer(card: int, function: str) -> Any:
    answer = _state()["cards"][card].get(function, {"error": 2})
    if isinstance(answer, dict) and "error" in answer:
        raise AmdSmiLibraryException(answer["error"])
    return answer


def amdsmi_init() -> None:
    os.write(1, b"noise from a C library\n")
    if error := _state().get("init_error"):
        raise AmdSmiLibraryException(error)


def amdsmi_get_processor_handles() -> list[int]:
    return list(range(len(_state()["cards"])))


def amdsmi_get_energy_count(handle: int) -> Any:
    return _answer(handle, "get_energy_count")


def amdsmi_get_power_info(handle: int) -> Any:
    return _answer(handle, "get_power_info")


def amdsmi_get_power_cap_info(handle: int) -> Any:
    return _answer(handle, "get_power_cap_info")


def amdsmi_set_power_cap(handle: int, sensor_ind: int, cap: int) -> None:
    _answer(handle, "set_power_cap")
    if not (isinstance(sensor_ind, int) and isinstance(cap, int)):
        raise AmdSmiException("parameters must be integers")
    state = _state()
    card = state["cards"][handle]
    if card["set_power_cap"] != "ignored":
        card["get_power_cap_info"]["power_cap"] = cap // 1_000_000 * 1_000_000  # the driver keeps whole watts
    Path(os.environ["ZEUS_TEST_AMDSMI"]).write_text(json.dumps(state))


def amdsmi_get_temp_metric(handle: int, sensor_type: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric) -> Any:
    return _answer(handle, f"get_temp_metric:{sensor_type.name}")


def amdsmi_get_gpu_process_list(handle: int) -> Any:
    return _answer(handle, "get_gpu_process_list")


def amdsmi_get_gpu_device_uuid(handle: int) -> Any:
    return _answer(handle, "get_gpu_device_uuid")


def amdsmi_get_gpu_device_bdf(handle: int) -> Any:
    return _answer(handle, "get_gpu_device_bdf")


def amdsmi_get_gpu_asic_info(handle: int) -> Any:
    return _answer(handle, "get_gpu_asic_info")


def amdsmi_get_gpu_board_info(handle: int) -> Any:
    return _answer(handle, "get_gpu_board_info")
