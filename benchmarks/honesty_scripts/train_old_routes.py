"""A client of the five old routes, in the words of the existing package: `train_old_routes.py URL`, one trial.

It may set its GPU's power limit by itself (a GlobalPowerLimitOptimizer), of which the service hears nothing. It prints
whether the target was reached.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from typing import Any

from toy import Toy

from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer

URL, JOB = sys.argv[1], json.loads(os.environ["JOB"])


def ask(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(URL + path, data=data, headers=headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def epoch(toy: Toy, power: GlobalPowerLimitOptimizer) -> None:
    power.on_epoch_begin()
    toy.begin_epoch()
    for _ in range(toy.steps):
        power.on_step_begin()
        toy.one_step()
        power.on_step_end()
    power.on_epoch_end()
    toy.evaluate()


monitor = ZeusMonitor()
card = monitor.gpus[0].spec
ask("POST", "/jobs", {**JOB, "max_power": float(card.max_watts), "number_of_gpus": 1, "gpu_model": card.name})
trial = ask("GET", f"/jobs/batch_size?job_id={JOB['job_id']}")
toy, power = Toy(trial["batch_size"]), GlobalPowerLimitOptimizer(monitor)
toy.mark("begin")
time, energy, answer = 0.0, 0.0, {"stop_train": False, "converged": False}
monitor.begin_window("trial")
toy.set_up()
while not answer["stop_train"]:
    epoch(toy, power)
    used = monitor.end_window("trial")
    monitor.begin_window("trial")
    time, energy = time + used.time, energy + used.total_energy
    body = {"time": time, "energy": energy, "metric": toy.metric(), "current_epoch": toy.epoch}
    answer = ask("POST", "/report", {**trial, **body})
power.on_train_end()
ask("PATCH", "/trials", trial)
print(json.dumps(answer["converged"]))
