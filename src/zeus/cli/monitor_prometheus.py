"""`zeus monitor --prometheus`: serves a node's power and energy to Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from zeus.errors import InputError
from zeus.lazy import optional

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from zeus.cli.monitor import MonitorView

GAUGES = {  # metric -> (field of a row, description)
    "zeus_gpu_watts": ("watts", "Power that the GPU draws now."),
    "zeus_gpu_limit_watts": ("limit_watts", "Power limit of the GPU."),
    "zeus_gpu_max_watts": ("max_watts", "Highest power limit that the GPU supports."),
    "zeus_gpu_celsius": ("celsius", "Temperature of the GPU."),
}
JOULES = "zeus_gpu_joules_total"
METRICS = (*GAUGES, JOULES)


class Latest:
    """The last readings of the GPUs, as metrics. Unknown values are left out; they are not 0."""

    def __init__(self) -> None:
        self.view: MonitorView | None = None

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        rows = () if self.view is None else self.view.rows
        labels = ["gpu", "uuid", "name"]
        for metric, (field, text) in GAUGES.items():
            family = GaugeMetricFamily(metric, text, labels=labels)
            for row in rows:
                if (value := getattr(row, field)) is not None:
                    family.add_metric([str(row.index), row.uuid, row.name], value)
            yield family
        used = CounterMetricFamily(
            JOULES.removesuffix("_total"), "Energy that the GPU has used since the monitor started.", labels=labels
        )
        for row in rows:
            if row.joules is not None:
                used.add_metric([str(row.index), row.uuid, row.name], row.joules)
        yield used


@contextmanager
def exposed(host: str, port: int) -> Iterator[Callable[[MonitorView], None]]:
    """Serve metrics inside a `with` block. The next scrape gets the view that was last shown."""
    with optional("--prometheus", "prometheus", "prometheus-client"):
        from prometheus_client import CollectorRegistry, start_http_server

    latest, registry = Latest(), CollectorRegistry()
    registry.register(latest)
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as wrong:
        raise InputError(f"--prometheus {port}: cannot listen on {host}: {wrong.strerror}.") from wrong
    click.echo(f"zeus: metrics at http://{host}:{server.server_port}/metrics until you press Ctrl-C", err=True)

    def show(view: MonitorView) -> None:
        latest.view = view

    try:
        yield show
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
