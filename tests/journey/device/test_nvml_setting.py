"""Setting NVIDIA cards: who may, what reaches the driver, and what other processes then see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from support.nvml.fake import FakeNvml, SetterCall, python
from zeus.device.nvml import nvml_gpus
from zeus.errors import DeviceError, InputError, NotPermitted


def test_a_limit_reaches_the_card_in_whole_milliwatts(fake_nvml: FakeNvml) -> None:
    nvml_gpus()[1].set_limit(300.12345)
    (call,) = fake_nvml.calls()
    assert call == SetterCall(os.getpid(), os.geteuid(), 1, "set_limit", 300.123, 0, call.time)
    assert fake_nvml.cards[1].limit_watts == 300.123


def test_a_refusal_says_how_to_get_the_right(fake_nvml: FakeNvml) -> None:
    gpu = nvml_gpus()[0]
    fake_nvml.cards[0].fail("set", "no_permission")
    for setter in (lambda: gpu.set_limit(300), lambda: gpu.set_persistence(True)):
        with pytest.raises(NotPermitted, match=r"root.*zeus keeper"):
            setter()
    assert gpu.limit() == 700 and not gpu.persistence()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_only_root_and_the_named_user_may_set(fake_nvml: FakeNvml) -> None:
    script = """
import os
from zeus.device.nvml import nvml_gpus
from zeus.errors import NotPermitted
gpu = nvml_gpus()[0]
gpu.spec
for user, watts in ((0, 600), (65534, 500), (1234, 400)):
    os.seteuid(0)
    os.seteuid(user)
    try:
        gpu.set_limit(watts)
    except NotPermitted:
        pass
"""
    fake_nvml.only_uid = 1234
    python(script, fake_nvml.env())
    assert [(call.uid, call.value, call.error) for call in fake_nvml.calls()] == [
        (0, 600.0, 0),
        (65534, 500.0, 4),
        (1234, 400.0, 0),
    ]
    assert fake_nvml.cards[0].limit_watts == 400


def test_a_limit_outside_the_range_never_reaches_the_driver(fake_nvml: FakeNvml) -> None:
    with pytest.raises(InputError, match=r"199\.9 W .* between 200 and 700 W"):
        nvml_gpus()[0].set_limit(199.9)
    assert fake_nvml.calls() == []


def test_a_setter_the_driver_cannot_follow_is_not_called_unsupported(fake_nvml: FakeNvml) -> None:
    gpu = nvml_gpus()[0]
    fake_nvml.cards[0].fail("set", "invalid_argument")
    with pytest.raises(DeviceError) as raised:
        gpu.set_limit(300)
    assert type(raised.value) is DeviceError


def test_read_only_never_reaches_the_driver_nor_even_the_binding(fake_nvml: FakeNvml) -> None:
    script = f"""
import sys
from zeus.device.nvml import NvmlGpu, nvml_gpus
from zeus.errors import ReadOnly
def refused(gpu):
    for setter, value in ((gpu.set_limit, 300), (gpu.set_limit, 5000), (gpu.set_persistence, True)):
        try:
            setter(value)
        except ReadOnly:
            continue
        raise SystemExit("not refused")
refused(NvmlGpu(0, {fake_nvml.cards[0].uuid!r}, "a card"))
print("pynvml" in sys.modules)
refused(nvml_gpus()[0])
"""
    assert python(script, fake_nvml.env(ZEUS_READ_ONLY="1")) == "False"
    assert fake_nvml.calls() == []
    assert fake_nvml.cards[0].reads("set") == 0


def test_every_process_sees_the_same_card_even_after_a_kill(fake_nvml: FakeNvml) -> None:
    script = """
from zeus.device.nvml import nvml_gpus
gpu = nvml_gpus()[0]
gpu.set_limit(250)
gpu.set_persistence(True)
print("set", flush=True)
input()
"""
    child = subprocess.Popen(
        [sys.executable, "-c", script], env=fake_nvml.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None and child.stdout.readline() == "set\n"
        gpu = nvml_gpus()[0]
        assert (gpu.limit(), gpu.persistence()) == (250.0, True)
        child.send_signal(signal.SIGKILL)
    assert (gpu.limit(), gpu.persistence()) == (250.0, True)
    assert {call.pid for call in fake_nvml.calls()} == {child.pid}
