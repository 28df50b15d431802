"""The batch size client of the existing package, as published, trains against `zeus serve`.

It lives in an environment of its own and reads its energy through its own monitor, from the library that speaks NVML.
Each training is a process, forked from one that has loaded the package. This test plays the training: it says how much
an epoch uses (by moving the driver's clock) and what the metric is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.environments import environment
from support.nvml.fake import FakeNvml
from support.served import Served
from zeus.job import Ending, Trial

pytestmark = pytest.mark.peers

PEER = "zeus==0.16.0"
WATTS = 100.0
JOB = {
    "job_id": "mnist", "job_id_prefix": "mnist", "batch_sizes": [32, 64, 128], "default_batch_size": 64,
    "eta_knob": 1.0, "target_metric": 0.9, "max_epochs": 8, "mab_seed": 1,
}  # fmt: skip
JOULES = {32: 3000.0, 64: 1000.0, 128: 500.0}  # of an epoch
EPOCHS = 5  # to the target
CLIENT = """
import json, os, sys, types

class Device:
    def __init__(self, index): pass
    def synchronize(self): pass

sys.modules["cupy"] = types.SimpleNamespace(cuda=types.SimpleNamespace(Device=Device))  # a framework to wait for

from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer, JobSpec
from zeus.optimizer.batch_size.exceptions import ZeusBSOTrainFailError

def say(**what):
    print(json.dumps(what), flush=True)

def hear():
    return json.loads(sys.stdin.readline() or "null")

while (order := hear()) is not None:
    if os.fork():
        os.wait()
        say(exited=True)
        continue
    os.environ["FAKE_NVML_STATE"] = order["driver"]
    monitor = ZeusMonitor(gpu_indices=[0], cpu_indices=[], sync_execution_with="cupy")
    optimizer = BatchSizeOptimizer(monitor, order["url"], JobSpec(**order["job"]))
    batch_size = optimizer.get_batch_size()
    optimizer.on_train_begin()
    say(batch_size=batch_size, trial=optimizer.trial_number, job_id=optimizer.job.job_id)
    while (metric := hear()) is not None and not optimizer.training_finished:
        try:
            optimizer.on_evaluate(metric)
        except ZeusBSOTrainFailError as failed:
            say(finished=True, failed=str(failed))
        else:
            say(finished=optimizer.training_finished)
    break  # what it registered to run at exit runs now
"""


class Client:
    """A process that has loaded the existing package and trains when told to."""

    def __init__(self, python: Path, library: Path) -> None:
        self.url = ""
        self.driver: FakeNvml | None = None
        self._process = subprocess.Popen(
            [python, "-c", CLIENT],
            env={**os.environ, "LD_LIBRARY_PATH": str(library.parent), "PYTHONPATH": ""},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def use(self, url: str, driver: FakeNvml) -> Client:
        """From now on train with this service and these cards."""
        self.url, self.driver = url, driver
        return self

    def say(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        heard: dict[str, Any] = json.loads(self._process.stdout.readline() or "null")
        assert heard is not None, "the client has ended"
        return heard

    def begin(self, **other: Any) -> dict[str, Any]:
        """Begin a training; what the client was given."""
        assert self.driver is not None
        self.say({"url": self.url, "driver": str(self.driver.path), "job": {**JOB, **other}})
        return self.hear()

    def epoch(self, joules: float, metric: float) -> dict[str, Any]:
        """An epoch that uses this much and reaches this metric; what the client makes of it."""
        assert self.driver is not None
        self.driver.advance(joules / WATTS)
        self.say(metric)
        return self.hear()

    def end(self) -> None:
        """Let the training process exit."""
        self.say(None)
        assert self.hear() == {"exited": True}

    def train(self, joules: dict[int, float] = JOULES, best: float = 1.0, **other: Any) -> dict[str, Any]:
        """A whole training. The last answer, with the batch size and the number of epochs."""
        given = self.begin(**other)
        for epoch in range(1, JOB["max_epochs"] + 2):
            told = self.epoch(joules[given["batch_size"]], best if epoch == EPOCHS else 0.1)
            if told["finished"]:
                self.end()
                return {**given, **told, "epochs": epoch}
        raise AssertionError("it was never told to stop")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="module")
def processes(nvml_library: Path) -> Iterator[list[Client]]:
    python = environment(Path(sys.executable), PEER)
    two = [Client(python, nvml_library) for _ in range(2)]
    yield two
    for client in two:
        client.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    place = Served(tmp_path)
    yield place.up()
    place.close()


@pytest.fixture
def clients(processes: list[Client], served: Served, fake_nvml: FakeNvml) -> list[Client]:
    fake_nvml.freeze()
    for card in fake_nvml.cards:
        card.counter_period, card.power_watts = 0, WATTS
    return [client.use(served.url, fake_nvml) for client in processes]


def trials(served: Served) -> list[Trial]:
    return [kept.trial for kept in served.store.trials("mnist")]


def test_ten_recurrences_find_the_cheapest_size(clients: list[Client], served: Served) -> None:
    done: list[dict[str, Any]] = []
    while sum("failed" not in one for one in done) < 10:
        done.append(clients[0].train())
        assert len(done) < 20, done
    converged = [one for one in done if "failed" not in one]
    assert converged[0]["batch_size"] == JOB["default_batch_size"]
    assert [one["batch_size"] for one in converged[-3:]] == [128] * 3
    kept = trials(served)
    assert [one.batch_size for one in kept] == [one["batch_size"] for one in done]
    assert {one.ask.recurrence for one in kept} == set(range(1, 11))
    for trial, one in zip(kept, done, strict=True):
        assert trial.ending is (Ending.STOPPED if "failed" in one else Ending.CONVERGED)
        assert trial.outcome is not None
        assert trial.outcome.joules == pytest.approx(one["epochs"] * JOULES[one["batch_size"]])
        assert (trial.ask.gpu_model, trial.ask.max_watts) == ("NVIDIA H200 (not really)", 700.0)


def test_a_size_that_costs_too_much_is_stopped_early(clients: list[Client], served: Served) -> None:
    dear = {32: 1e6, 64: 1000.0, 128: 1e6}
    first, second = clients[0].train(dear), clients[0].train(dear)
    assert "failed" not in first
    assert second["epochs"] == 1
    assert "the next epoch would cost more" in second["failed"]
    assert [one.ending for one in trials(served)] == [Ending.CONVERGED, Ending.STOPPED]


def test_without_beta_nothing_is_stopped_early(clients: list[Client], served: Served) -> None:
    dear = {32: 1e6, 64: 1000.0, 128: 1e6}
    ran = [clients[0].train(dear, beta_knob=None) for _ in range(3)]
    assert [one["epochs"] for one in ran] == [EPOCHS] * 3
    assert {one.ending for one in trials(served)} == {Ending.CONVERGED}
    assert any(one["batch_size"] != 64 for one in ran)


def test_a_training_that_does_not_converge_fails_and_the_next_size_is_another(
    clients: list[Client], served: Served
) -> None:
    failed = clients[0].train(best=0.2)
    assert failed["epochs"] == JOB["max_epochs"]
    assert "8 epochs did not reach the target" in failed["failed"]
    again = clients[0].train()
    assert again["batch_size"] != failed["batch_size"]
    assert [(one.ending, one.ask.recurrence) for one in trials(served)] == [
        (Ending.NOT_CONVERGED, 1),
        (Ending.CONVERGED, 1),
    ]


def test_a_script_that_exits_before_its_first_report_has_crashed(clients: list[Client], served: Served) -> None:
    clients[0].begin()
    clients[0].end()
    assert [one.ending for one in trials(served)] == [Ending.CRASHED]


def test_two_at_a_time_are_two_recurrences(clients: list[Client], served: Served) -> None:
    given = [client.begin() for client in clients]
    assert [one["trial"] for one in given] == [1, 2]
    for epoch in range(1, EPOCHS + 1):
        told = [client.epoch(100.0, 1.0 if epoch == EPOCHS else 0.1) for client in clients]
    assert told == [{"finished": True}] * 2
    for client in clients:
        client.end()
    assert [(one.ending, one.ask.recurrence) for one in trials(served)] == [
        (Ending.CONVERGED, 1),
        (Ending.CONVERGED, 2),
    ]


def test_the_service_may_restart_in_the_middle(clients: list[Client], served: Served) -> None:
    first = clients[0]
    assert first.begin()["trial"] == 1
    assert first.epoch(1000.0, 0.1) == {"finished": False}
    served.down()
    served.up()
    assert first.epoch(1000.0, 0.95) == {"finished": True}
    first.end()
    (kept,) = trials(served)
    assert kept.outcome is not None
    assert (kept.ending, kept.outcome.epochs) == (Ending.CONVERGED, 2)
    assert kept.outcome.joules == pytest.approx(2000.0)


def test_a_job_without_an_id_is_the_same_job_each_time(clients: list[Client]) -> None:
    ids = {clients[0].train(job_id=None)["job_id"] for _ in range(2)}
    assert len(ids) == 1
