"""Energy and power of windows, as a Pushgateway receives them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

pytest.importorskip("prometheus_client", reason="needs `pip install prometheus-client`")

from support.cards import VirtualCards
from support.served import Heard, odd_service
from zeus.compat.prometheus import EnergyCumulativeCounter, EnergyHistogram, PowerGauge
from zeus.device.virtual import VirtualMachine
from zeus.errors import InputError, WindowError


class Gateway:
    """Keeps the last push of each job."""

    def __init__(self) -> None:
        self.url = ""
        self.pushed: dict[str, str] = {}

    def answer(self, request: Heard) -> None:
        self.pushed[request.path.rpartition("/")[2]] = request.body.decode()
        request.send_response(200)
        request.send_header("Content-Length", "0")
        request.end_headers()

    def value(self, job: str, sample: str) -> float:
        found = re.search(rf"^{re.escape(sample)} (\S+)$", self.pushed[job], re.MULTILINE)
        assert found is not None, self.pushed[job]
        return float(found[1])


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    place = Gateway()
    with odd_service(place.answer) as place.url:
        yield place


@pytest.fixture
def machine(virtual_cards: VirtualCards) -> VirtualMachine:
    return virtual_cards("v100x2?clock=virtual")[0].machine


def test_a_histogram_counts_windows_by_what_they_used(machine: VirtualMachine, gateway: Gateway) -> None:
    metric = EnergyHistogram([], [0, 1], gateway.url, "train", gpu_bucket_range=[100.0, 1000.0])
    for seconds in (1, 5):
        metric.begin_window("epoch")
        machine.run([0, 1], seconds=seconds, watts=150)
        metric.end_window("epoch")
    where = 'energy_monitor_gpu_energy_joules{}{{index="1",window="epoch"}}'
    assert gateway.value("train", where.format("_sum")) == pytest.approx(900.0)
    assert gateway.value("train", where.format("_count")) == 2
    low = 'energy_monitor_gpu_energy_joules_bucket{index="0",le="1000.0",window="epoch"}'
    assert gateway.value("train", low) == 2


def test_a_counter_grows_while_its_window_is_open(machine: VirtualMachine, gateway: Gateway) -> None:
    metric = EnergyCumulativeCounter([], [0], 2, gateway.url, "train")
    sample = 'energy_monitor_gpu_energy_joules_total{index="0",window="epoch"}'
    metric.begin_window("epoch")
    machine.run([0], seconds=5, watts=100)
    assert 200 <= gateway.value("train", sample) <= 500
    metric.end_window("epoch")
    assert gateway.value("train", sample) == pytest.approx(500.0)
    metric.begin_window("epoch")
    machine.run([0], seconds=1, watts=100)
    metric.end_window("epoch")
    assert gateway.value("train", sample) == pytest.approx(600.0)


def test_a_gauge_shows_the_power_while_its_window_is_open(machine: VirtualMachine, gateway: Gateway) -> None:
    metric = PowerGauge([0], 1, gateway.url, "train")
    metric.begin_window("epoch")
    machine.run([0], seconds=4.5, watts=220)
    assert gateway.value("train", 'power_monitor_gpu_power_watts{index="0",window="epoch"}') == 220
    metric.end_window("epoch")


def test_wrong_windows_and_arguments_are_errors(machine: VirtualMachine, gateway: Gateway) -> None:
    gauge, counter = PowerGauge([0], 1, gateway.url, "train"), EnergyCumulativeCounter([], [0], 1, gateway.url, "train")
    for metric in (gauge, counter):
        metric.begin_window("w")
        with pytest.raises(WindowError, match="'w'"):
            metric.begin_window("w")
        metric.end_window("w")
        with pytest.raises(WindowError, match="'w'"):
            metric.end_window("w")
    with pytest.raises(InputError, match="update_period=0"):
        PowerGauge([0], 0, gateway.url, "train")
    with pytest.raises(InputError, match="cpu_bucket_range"):
        EnergyHistogram([], [0], gateway.url, "train", cpu_bucket_range=[])


def test_a_gateway_that_does_not_answer_stops_nothing(
    machine: VirtualMachine, caplog: pytest.LogCaptureFixture
) -> None:
    metric = EnergyHistogram([], [0], "http://127.0.0.1:9", "train")
    metric.begin_window("w")
    metric.end_window("w")
    assert "Nothing was pushed to http://127.0.0.1:9" in caplog.text
