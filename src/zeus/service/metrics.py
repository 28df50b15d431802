"""`/metrics` for Prometheus: what the jobs of the store have used, and how fast requests are answered.

Job metrics are read from the store at each scrape, so every worker and replica reports the same. Latencies are those
of one process, or of all workers if PROMETHEUS_MULTIPROC_DIR names a folder, which `zeus serve` sets for workers.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, multiprocess
from prometheus_client.core import GaugeMetricFamily, Metric

from zeus import settings
from zeus.service.overview import Overview
from zeus.store import Store

JOB = "zeus_job"  # `job` is Prometheus's own label, for what it scrapes
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)


class ServiceMetrics:
    """The metrics of one service."""

    def __init__(self, store: Store, overview: Overview) -> None:
        self._store = store
        self._overview = overview
        self._shared = settings.shared_metrics()
        self._registry = CollectorRegistry()
        labels = ("method", "route")
        self._seconds = Histogram(
            "zeus_request_seconds", "Time to answer a request.", labels, buckets=BUCKETS, registry=self._registry
        )
        self._answers = Counter(
            "zeus_requests", "Requests answered, by status.", (*labels, "status"), registry=self._registry
        )

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request. `route` is the pattern, never the path, which holds what users typed."""
        self._seconds.labels(method, route).observe(seconds)
        self._answers.labels(method, route, str(status)).inc()

    def text(self) -> bytes:
        """The metrics in Prometheus's text format."""
        registry = CollectorRegistry()
        if self._shared:
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        facts = CollectorRegistry()
        facts.register(self)
        return generate_latest(registry if self._shared else self._registry) + generate_latest(facts)

    def collect(self) -> Iterator[Metric]:
        """Read the job metrics from the store."""
        sums = self._overview.totals()
        rows, uncounted = sums.rows, sums.uncounted
        yield GaugeMetricFamily("zeus_jobs", "Recurring jobs in the store.", value=len(rows) + uncounted)
        missing = "Jobs that are not in the other metrics yet, because they still have to be read."
        yield GaugeMetricFamily("zeus_jobs_uncounted", missing, value=uncounted)
        endings = GaugeMetricFamily("zeus_trials", "Trials, by how they stand.", labels=["ending"])
        total: Count[str] = Count()
        for row in rows.values():
            total.update(row.endings)
        for ending, number in sorted(total.items()):
            endings.add_metric([ending], number)
        yield endings
        used = {
            "zeus_job_joules": ("Energy that a job has used, as far as it is known.", "joules"),
            "zeus_job_cost_joules": ("Cost (Equation 2) of a job's recurrences, as far as it is known.", "cost"),
            "zeus_job_recurrences": ("Recurrences of a job.", "recurrences"),
        }
        for name, (text, key) in used.items():
            family = GaugeMetricFamily(name, text, labels=[JOB])
            for job, row in rows.items():
                value = getattr(row, key)
                if value is not None:
                    family.add_metric([job], value)
            yield family
        for name, text, key in (
            ("zeus_job_saved_joules", "Energy saved against the default.", "joules"),
            ("zeus_job_saved_joules_error", "Standard error of zeus_job_saved_joules.", "joules_error"),
        ):
            saved = GaugeMetricFamily(name, text, labels=[JOB])
            for job, row in rows.items():
                if row.saving is not None:
                    saved.add_metric([job], getattr(row.saving, key))
            yield saved
