"""The small functions: variables, cost, place, and frameworks."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from zeus.compat.utils import all_reduce, cupy_is_available, get_env, get_ip_lat_long, sync_execution
from zeus.device.virtual import VirtualMachine
from zeus.errors import InputError, NotHere, ZeusError
from zeus.monitor import ZeusMonitor
from zeus.monitor.window import wait_for


def test_a_variable_has_the_type_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME", "3")
    assert (get_env("SOME", int), get_env("SOME", float, 1.0), get_env("SOME", str)) == (3, 3.0, "3")
    with pytest.raises(InputError, match=r"SOME='3'.*bool"):
        get_env("SOME", bool)
    monkeypatch.setenv("SOME", "True")
    assert get_env("SOME", bool) is True
    with pytest.raises(InputError, match=r"SOME='True'.*float"):
        get_env("SOME", float)
    monkeypatch.delenv("SOME")
    with pytest.raises(ValueError, match="has no SOME"):
        get_env("SOME", int)


def test_nobody_is_asked_where_this_machine_is() -> None:
    with pytest.raises(NotHere, match="latitude"):
        get_ip_lat_long()


def test_a_framework_that_is_not_installed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    sync_execution([0], sync_with="cupy")
    with pytest.raises(InputError, match="'tensorflow'"):
        sync_execution([0], sync_with="tensorflow")
    with pytest.raises(InputError, match="'mean'"):
        all_reduce([1.0], "mean")
    if not cupy_is_available():
        with pytest.raises(ZeusError, match="pip install cupy"):
            cupy_is_available(ensure_available=True)


def test_windows_wait_for_the_work_of_cupy_on_their_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    device = lambda index: SimpleNamespace(synchronize=lambda: waited.append(index))  # noqa: E731
    cuda = SimpleNamespace(Device=device, runtime=SimpleNamespace(getDeviceCount=lambda: 1))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    machine = VirtualMachine.in_memory("v100", 2)
    monitor = ZeusMonitor(gpus=dict(enumerate(machine.gpus)), sync_execution_with="cupy")
    monitor.begin_window("w")
    monitor.end_window("w", sync_execution=False)
    assert waited == [0]  # cupy sees one card only
    wait_for("cupy", [0, 1])
    assert waited == [0, 0]
