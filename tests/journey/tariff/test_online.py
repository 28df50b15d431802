"""Carbon intensity from an online source: a local server that answers well, badly, slowly or not at all."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from support.served import hold_port
from support.waiting import eventually
from zeus.device.virtual import VirtualMachine
from zeus.monitor import ZeusMonitor
from zeus.tariff import prices
from zeus.tariff.online import FRESH_SECONDS, MOST_BYTES, RETRY_SECONDS, OnlineRate
from zeus.tariff.rates import Prices, hour_of, hour_text

NOW = hour_of("2026-11-15T17:00Z")


class Source:
    """A source with these answers, and what it was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer: Callable[[], tuple[int, bytes]] = lambda: (200, b"{}")
        self.asked: list[dict[str, str]] = []

    def tell(self, value: Any, status: int = 200) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.answer = lambda: (status, body)


@contextmanager
def serving() -> Iterator[Source]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            source.asked.append({name.lower(): value for name, value in self.headers.items()})
            status, body = source.answer()
            self.send_response(status)
            self.end_headers()
            with contextlib.suppress(OSError):  # who asked has heard enough
                self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    source = Source(f"http://127.0.0.1:{server.server_address[1]}/v3/carbon-intensity/latest?zone=DE")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield source
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def source() -> Iterator[Source]:
    with serving() as found:
        yield found


class Wall:
    """A wall clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = NOW * 3600.0 + 60

    def __call__(self) -> float:
        return self.seconds


def test_each_hour_is_asked_for_once_with_the_token(source: Source) -> None:
    wall = Wall()
    rate = OnlineRate(source.url, "secret", wall=wall)
    source.tell({"zone": "DE", "carbonIntensity": 312, "datetime": "2026-11-15T17:00:00.000Z"})
    assert [rate.at(NOW) for _ in range(3)] == [312.0] * 3
    assert len(source.asked) == 1
    assert source.asked[0]["auth-token"] == "secret"
    wall.seconds += 3600
    source.tell({"zone": "DE", "carbonIntensity": 280, "datetime": "2026-11-15T18:00:00.000Z"})
    assert (rate.at(NOW), rate.at(NOW + 1)) == (312.0, 280.0)
    assert len(source.asked) == 2


def test_a_history_tells_all_its_hours_at_once(source: Source) -> None:
    hours = range(NOW - 3, NOW + 1)
    rows = [{"carbonIntensity": 100 + hour - NOW, "datetime": hour_text(hour)} for hour in hours]
    source.tell({"history": [*rows, {"carbonIntensity": None, "datetime": hour_text(NOW - 4)}]})
    rate = OnlineRate(source.url, wall=Wall())
    assert [rate.at(hour) for hour in hours] == [97.0, 98.0, 99.0, 100.0]
    assert rate.at(NOW - 4) is None
    assert len(source.asked) == 1
    assert "auth-token" not in source.asked[0]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"error": "no such zone"}, 404),
        ({"carbonIntensity": 300}, 500),
        ({"carbonIntensity": "many"}, 200),
        ({"carbonIntensity": -1}, 200),
        ({"carbonIntensity": 1e300}, 200),
        ({"carbonIntensity": 312_000}, 200),  # grams per MWh
        (b'{"carbonIntensity": 300, "more": "' + b" " * 2 * MOST_BYTES + b'"}', 200),
        ({"carbonIntensity": 300, "datetime": "soon"}, 200),
        ([1, 2], 200),
        (b"<html>", 200),
        (b"", 200),
    ],
)
def test_an_answer_that_makes_no_sense_is_unknown_and_said_once_without_the_token(
    source: Source, caplog: pytest.LogCaptureFixture, answer: Any, status: int
) -> None:
    wall = Wall()
    source.tell(answer, status)
    rate = OnlineRate(f"{source.url}&token=secret", "secret", wall=wall)
    with caplog.at_level(logging.WARNING):
        assert [rate.at(NOW), rate.at(NOW)] == [None, None]
    assert len(caplog.records) == 1
    assert "the carbon intensity is unknown" in caplog.text
    assert "secret" not in caplog.text
    source.tell({"carbonIntensity": 300})
    wall.seconds += RETRY_SECONDS
    assert rate.at(NOW) == 300.0  # asked again, later


def test_a_source_that_is_away_or_silent_is_unknown_after_its_time(source: Source) -> None:
    with hold_port() as door:
        away = OnlineRate(f"http://127.0.0.1:{door.getsockname()[1]}/", timeout=0.2, wall=Wall())
        assert away.at(NOW) is None
    over = threading.Event()

    def silent() -> tuple[int, bytes]:
        over.wait(30)
        return 200, b'{"carbonIntensity": 1}'

    source.answer = silent
    assert OnlineRate(source.url, timeout=0.2, wall=Wall()).at(NOW) is None
    over.set()


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["header", "body"])
def test_a_source_that_drips_is_unknown_after_its_time(begun: bytes) -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            door, _ = server.accept()
            with door, contextlib.suppress(OSError):
                door.sendall(begun)
                while not over.wait(0.05):
                    door.sendall(b"x")

        dripping = threading.Thread(target=drip)
        dripping.start()
        began = time.monotonic()
        rate = OnlineRate(f"http://127.0.0.1:{server.getsockname()[1]}/", timeout=0.3, wall=Wall())
        assert rate.at(NOW) is None
        assert time.monotonic() - began < 5
        over.set()
        dripping.join()


def test_hours_that_no_source_tells_about_are_not_asked_for(source: Source) -> None:
    rate = OnlineRate(source.url, wall=Wall())
    assert (rate.at(NOW - 1000), rate.at(NOW + 1)) == (None, None)
    assert source.asked == []


def test_a_missing_hour_is_not_asked_for_again_at_once(source: Source) -> None:
    wall = Wall()
    rate = OnlineRate(source.url, wall=wall)
    source.tell({"carbonIntensity": 312, "datetime": hour_text(NOW)})
    assert (rate.at(NOW - 1), rate.at(NOW - 1)) == (None, None)
    assert len(source.asked) == 1
    wall.seconds += FRESH_SECONDS
    assert rate.at(NOW - 1) is None
    assert len(source.asked) == 2


def test_a_monitor_asks_in_the_background_and_a_measurement_is_priced(source: Source) -> None:
    hour = int(time.time() // 3600)
    rows = [{"carbonIntensity": 250, "datetime": hour_text(hour + one)} for one in range(3)]
    source.tell({"history": rows})
    given = prices({"ZEUS_GCO2E_PER_KWH": source.url, "ZEUS_GCO2E_TOKEN": "t"})
    monitor = ZeusMonitor(gpus={}, prices=given)
    with monitor.window("nothing"):
        eventually(lambda: bool(source.asked))
    monitor.close()
    assert given.footprint({hour: 3.6e6}).gco2e == pytest.approx(250.0)


def test_windows_ask_about_each_new_hour_once(source: Source) -> None:
    wall = Wall()
    rate = OnlineRate(source.url, wall=wall)
    monitor = ZeusMonitor(gpus={}, prices=Prices(gco2e_per_kwh=rate))
    monitor.begin_window("train")
    for asked, hour in enumerate((NOW, NOW + 1), start=1):
        source.tell({"carbonIntensity": 250, "datetime": hour_text(hour)})
        monitor.split_window("train")
        eventually(lambda hour=hour: rate.at(hour, wait=False) is not None)
        for _ in range(20):
            monitor.split_window("train")
        assert len(source.asked) == asked
        wall.seconds += 3600
    monitor.close()


def test_a_source_that_does_not_answer_leaves_a_training_alone() -> None:
    machine = VirtualMachine.in_memory("v100")
    rate = OnlineRate("http://127.0.0.1:9/", timeout=0.2)
    monitor = ZeusMonitor(gpus={0: machine.gpus[0]}, prices=Prices(0.3, "EUR", rate))
    with monitor.window("train") as window:
        machine.run([0], seconds=36, watts=100.0)
    assert window.measurement is not None
    assert (window.measurement.gco2e, window.measurement.footprint.gco2e_covers) == (None, 0.0)
    assert window.measurement.money == pytest.approx(0.0003)


def test_without_a_url_no_network_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(httpx, "get", never)
    assert prices({"ZEUS_PRICE_PER_KWH": "0.3", "ZEUS_GCO2E_PER_KWH": "400"}).at(NOW) == (0.3, 400.0)
