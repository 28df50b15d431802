"""The toy training that every way of using Zeus runs: steps on a virtual card, and a metric that goes by the epoch.

What it is like is told in the variable TOY, a JSON object:

    samples, growth, noise   an epoch has samples x growth / batch size steps; with noise it has a few per cent more or
                             fewer in each process, and some steps are done twice
    counted                  whether a script that writes lines says how many samples an epoch has
    needed                   epochs to the target by batch size; more than any run has: never
    work, run_noise          how often each step is done, times a factor that each process draws: lognormal, of mean 1,
                             with this relative deviation
    warm                     how often each step of a process's first epoch is done
    idle_warm                how many times as long each step of the first epoch takes, because the card then waits
    idle_once                how many epochs long the card waits in its first step, as for data that are loaded
    evaluation               evaluation steps after each epoch, as a share of the training steps
    set_up                   idle seconds before the first epoch
    longer                   how many times more samples an epoch has, by batch size; none: as many
    crash                    a batch size that fails in its second epoch; 0: none
    pause                    real seconds that an epoch waits, for somebody who wants to kill it there
    seed                     of the noise

It keeps a ledger of its own, in ledger.jsonl: what the card had used where its trial began and where it ended.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from pathlib import Path
from typing import Any

from zeus.device.find import find
from zeus.device.virtual import step
from zeus.device.virtual.physics import Operation, operate

TARGET = 0.9
BEST = 0.95  # beyond doubt, also in single precision
TWICE = 0.1  # the share of steps that are done twice, with noise


class Toy:
    """One training of one batch size."""

    def __init__(self, size: int) -> None:
        told: dict[str, Any] = json.loads(os.environ["TOY"])
        self.told, self.size = told, size
        self.needed = told["needed"][str(size)]
        self.gpus = list(find().values())
        self.clock = self.gpus[0].clock  # type: ignore[attr-defined]
        self.epoch = 0
        self.waited = False
        self.ledger = Path("ledger.jsonl")
        begun = self.ledger.read_text().count('"begin"') if self.ledger.exists() else 0
        self.random = random.Random(f"{told['seed']} {begun}")
        longer = told.get("longer", {}).get(str(size), 1)
        samples = told["samples"] * told["growth"] * longer
        self.samples = round(samples)
        self.steps = max(1, round(samples * (1 + told["noise"] * self.random.uniform(-1, 1)) / size))
        self.evaluation_steps = round(
            told["evaluation"] * self.steps / longer
        )  # all sizes have the same evaluation set
        spread = math.sqrt(math.log1p(told["run_noise"] ** 2))
        self.factor = math.exp(self.random.gauss(-(spread**2) / 2, spread)) if spread else 1.0

    def mark(self, what: str) -> None:
        """Write down what the card has used by now."""
        used = {"joules": sum(gpu.energy() for gpu in self.gpus), "seconds": self.clock.now()}
        trial = {"trial": os.environ.get("ZEUS_TRIAL"), "size": self.size, "factor": self.factor}
        line = {"what": what, **trial, "epoch": self.epoch, **used}
        with self.ledger.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def set_up(self) -> None:
        self.clock.sleep(self.told["set_up"])

    def begin_epoch(self) -> None:
        """The one that crashes does so here, in its second epoch; the one that waits has a first epoch behind it."""
        if self.epoch == 1 and self.size == self.told["crash"]:
            raise RuntimeError("this size does not fit")
        if self.epoch and self.told["pause"]:
            self.mark("pause")
            time.sleep(self.told["pause"])

    def work_more(self) -> None:
        """What a step does beyond itself: more work, warming up, noise."""
        more = self.told["warm"] - 1 if self.epoch == 0 else 0
        more += self.told["noise"] > 0 and self.random.random() < TWICE
        for _ in range(more):
            step(self.gpus, self.size)
        self._work(self.told["work"] * self.factor - 1)
        seconds = self._operate(self.gpus[0].spec.max_watts).seconds
        if self.epoch == 0 and self.told["idle_warm"] > 1:
            self.clock.sleep((self.told["idle_warm"] - 1) * seconds)
        if self.epoch == 0 and not self.waited:
            self.waited = True
            self.clock.sleep(self.told["idle_once"] * self.steps * seconds)

    def _work(self, share: float) -> None:
        """A share of a step, or several steps."""
        for gpu in self.gpus if share > 0 else []:
            done = self._operate(gpu.limit())
            gpu.machine.run([gpu.index], share * done.seconds, done.watts)  # type: ignore[attr-defined]

    def _operate(self, limit: float) -> Operation:
        """One step at this limit."""
        machine = self.gpus[0].machine  # type: ignore[attr-defined]
        return operate(machine.card, machine.load, self.size, limit)

    def one_step(self) -> None:
        """A step of a training that has no loader or callback to tell the card of it."""
        step(self.gpus, self.size)
        self.work_more()

    def train(self) -> None:
        self.begin_epoch()
        for _ in range(self.steps):
            self.one_step()

    def evaluate(self) -> None:
        for _ in range(self.evaluation_steps):
            step(self.gpus, self.size)

    def metric(self) -> float:
        """What the epoch came to; it has ended. At the target, so has the trial."""
        self.epoch += 1
        if self.epoch == self.needed:
            self.mark("end")
        return BEST * min(1.0, self.epoch / self.needed)
