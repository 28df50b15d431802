"""A loop of one's own with BatchSizeOptimizer, under `zeus run` or by itself: `train_own.py TELLS`.

TELLS is what it tells the optimizer of: `all` of its epochs and steps, nothing but its `evaluations`, or all where it
also has a GlobalPowerLimitOptimizer that it made by hand (`limits`). With `alone` it does that without a launcher, and
its job is described in the variable JOB.
"""

from __future__ import annotations

import json
import os
import sys

from toy import Toy

from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer, JobSpec
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer

tells = sys.argv[1]
monitor = ZeusMonitor()
told = json.loads(os.environ["JOB"]) if tells == "alone" else None
spec = None if told is None else JobSpec(**{**told, "batch_sizes": tuple(told["batch_sizes"])})
optimizer = BatchSizeOptimizer(monitor, job=spec)
listeners = [] if tells == "evaluations" else [optimizer]
if tells in ("limits", "alone"):
    listeners.append(GlobalPowerLimitOptimizer(monitor))


def tell(event: str) -> None:
    for one in listeners:
        getattr(one, event)()


def epoch(toy: Toy) -> None:
    tell("on_epoch_begin")
    toy.begin_epoch()
    for _ in range(toy.steps):
        tell("on_step_begin")
        toy.one_step()
        tell("on_step_end")
        if optimizer.training_finished:  # in the middle of an epoch
            return
    tell("on_epoch_end")
    if optimizer.training_finished:
        return
    toy.evaluate()
    optimizer.on_evaluate(toy.metric())


def train() -> None:
    toy = Toy(optimizer.get_batch_size())
    optimizer.on_train_begin()
    toy.mark("begin")
    toy.set_up()
    while not optimizer.training_finished:
        epoch(toy)


train()
while tells == "alone" and not optimizer.converged:  # another try of the same recurrence
    train()
tell("on_train_end")
