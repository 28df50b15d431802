"""The queries of the Grafana board, run by a real Prometheus that scrapes the service and a node."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

from support.launch_place import Place
from support.live import live, token
from support.prometheus import needs_prometheus, prometheus
from support.served import hold_port
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.client.local import LocalJobs
from zeus.job import Ending, Gpus, JobSpec, Outcome, replace
from zeus.service.app import Settings
from zeus.store import MemoryStore
from zeus.store.tokens import Scope

pytestmark = needs_prometheus
SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16), default_batch_size=16, baseline_every=2)
SCRAPES = """
- job_name: zeus
  authorization: {{credentials_file: {secret}}}
  static_configs: [{{targets: ["{service}"]}}]
- job_name: zeus-nodes
  static_configs: [{{targets: ["{node}"]}}]
"""


def board() -> list[str]:
    """Every query of the board, for all jobs."""
    told = json.loads(resources.files("zeus.service").joinpath("grafana.json").read_text())
    return [one["expr"].replace("$zeus_job", ".*") for panel in told["panels"] for one in panel.get("targets", [])]


def test_every_query_of_the_board_finds_what_the_service_and_a_node_tell(tmp_path: Path) -> None:
    store = MemoryStore()
    jobs = LocalJobs(store)
    for name in ("asr", 'a"b\\c'):
        jobs.register(replace(SPEC, job_id=name))
        for _ in range(6):
            trial, _ = jobs.ask(name, Gpus("V100", 1, 250.0))
            joules = 100.0 if trial.batch_size == 16 else 60.0
            done = Outcome(ending=Ending.CONVERGED, joules=joules, seconds=1.0, epochs=2, metric=0.9)
            store.tell(name, trial.number, done)
    secret = tmp_path / "token"
    secret.write_text(token(store, Scope.READ))
    with hold_port() as door:
        port = door.getsockname()[1]
    node = [sys.executable, "-m", "zeus.cli", "monitor", "--prometheus", str(port)]
    with (
        live(store, Settings(open=False)) as service,
        subprocess.Popen(
            node, env=Place(tmp_path).env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as monitor,
        prometheus(
            tmp_path,
            SCRAPES.format(secret=secret, service=service.removeprefix("http://"), node=f"127.0.0.1:{port}"),
        ) as server,
    ):
        try:
            for query in board():
                eventually(lambda query=query: bool(server.query(query)), lambda query=query: query)
            (energy,) = server.query("sum(max by (zeus_job) (zeus_job_joules))")
            assert float(energy["value"][1]) == sum(row["joules"] for row in jobs.briefs())
            names = {one["metric"]["zeus_job"] for one in server.query("zeus_job_recurrences")}
            assert names == {"asr", 'a"b\\c'}
            assert [one["value"][1] for one in server.query("up")] == ["1", "1"]
        finally:
            monitor.terminate()
            monitor.wait(PATIENCE_SECONDS)
