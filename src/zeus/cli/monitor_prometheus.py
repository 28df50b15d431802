"""`zeus monitor --prometheus`: a node's power and energy for Prometheus to scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from zeus.errors import InputError, ZeusError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from zeus.cli.monitor import MonitorView

GAUGES = {  # metric -> the field of a row and what it is
    "zeus_gpu_watts": ("watts", "Power that a GPU draws now."),
    "zeus_gpu_limit_watts": ("limit_watts", "Its power limit."),
    "zeus_gpu_max_watts": ("max_watts", "The highest limit that it supports."),
    "zeus_gpu_celsius": ("celsius", "Its temperature."),
}
JOULES = "zeus_gpu_joules_total"
METRICS = (*GAUGES, JOULES)


class Latest:
    """The last look at the GPUs, as metrics. What a GPU cannot tell is left out: not known is not zero."""

    def __init__(self) -> None:
        self.view: MonitorView | None = None

    def collect(self) -> Iterator[Metric]:
        """One sample for each GPU."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        rows = () if self.view is None else self.view.rows
        labels = ["gpu", "uuid", "name"]
        for metric, (field, text) in GAUGES.items():
            family = GaugeMetricFamily(metric, text, labels=labels)
            for row in rows:
                if (value := getattr(row, field)) is not None:
                    family.add_metric([str(row.index), row.uuid, row.name], value)
            yield family
        used = CounterMetricFamily(JOULES.removesuffix("_total"), "Energy since the monitor began.", labels=labels)
        for row in rows:
            if row.joules is not None:
                used.add_metric([str(row.index), row.uuid, row.name], row.joules)
        yield used


@contextmanager
def exposed(host: str, port: int) -> Iterator[Callable[[MonitorView], None]]:
    """Serve scrapes for as long as this lasts; each view that is shown is what the next scrape gets."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as missing:
        raise ZeusError("--prometheus needs prometheus-client: pip install 'zeus-energy[service]'.") from missing

    latest, registry = Latest(), CollectorRegistry()
    registry.register(latest)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as wrong:
        raise InputError(f"--prometheus {port}: {host} cannot be listened on: {wrong.strerror}.") from wrong
    click.echo(f"zeus: metrics at http://{host}:{server.server_port}/metrics; Ctrl-C ends it", err=True)

    def show(view: MonitorView) -> None:
        latest.view = view

    try:
        yield show
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
