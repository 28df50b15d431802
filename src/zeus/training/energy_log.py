"""Energy values for a framework's log: J/step, J/sample and W, without waiting for a sensor or a network.

A training is cut into stretches of steps. The log shows the newest stretch whose energy is already known.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import deque
from dataclasses import dataclass

from zeus.cost import GPU_ONLY, Use, included
from zeus.distributed.crew import Alone, Crew, barrier, together
from zeus.distributed.waiting import WaitRecord
from zeus.errors import DeviceError
from zeus.launcher_env import launcher_env
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor.hours import EnergyByHour
from zeus.training.summary import Summary, TrainingEnd

_WINDOW = "zeus: energy log"


@dataclass(frozen=True, slots=True)
class _Stretch:
    steps: int
    samples: int
    measurement: Measurement


class EnergyLog:
    """Cuts a training into stretches and sums what they used over all ranks.

    >>> from zeus.device.virtual import VirtualMachine
    >>> machine = VirtualMachine.in_memory("v100")
    >>> log = EnergyLog(ZeusMonitor(gpus={0: machine.gpus[0]}))
    >>> log.begin()
    >>> machine.run([0], seconds=2, watts=200); log.batch(samples=16); log.step()
    >>> log.cut()
    >>> log.values()["zeus/joules_per_sample"], log.values()["zeus/watts"]
    (25.0, 200.0)
    """

    def __init__(self, monitor: ZeusMonitor, crew: Crew | None = None) -> None:
        self._monitor = monitor
        self._include = included(launcher_env().include or GPU_ONLY)  # under `zeus run`, what the job's costs count
        self._crew: Crew = crew or Alone()
        self._waits = WaitRecord(self._crew)
        self._pending: deque[_Stretch] = deque()
        self._steps = self._samples = 0
        self._open = False
        self._latest: dict[str, float] = {}
        self.joules = 0.0  # since the training began, evaluation included; NaN if a GPU does not report it
        self.seconds = 0.0
        self._hours = EnergyByHour(monitor.prices, self._include)

    def begin(self) -> None:
        self._steps = self._samples = 0
        self._monitor.begin_window(_WINDOW, sync_execution=False, restart=True)
        self._open = True

    def batch(self, samples: int) -> None:
        """Count a batch of so many samples on this rank."""
        self._samples += samples

    def step(self) -> None:
        """Count an update of the weights."""
        self._steps += 1

    def cut(self) -> None:
        """End a stretch. All ranks must do this at the same step."""
        if self._open:
            self._learn(self._known())
            self._keep(self._monitor.split_window(_WINDOW, sync_execution=False))
            if self._crew.size == 1:
                self._learn(self._known())

    def end(self, wait: bool = True) -> None:
        """End the log. Set `wait` to false if other ranks may be gone; what is not known yet is then dropped."""
        if self._open:
            if wait:
                with contextlib.suppress(DeviceError):  # a rank is lost; `_learn` finds out too
                    barrier(self._crew)
            self._open = False
            self._keep(self._monitor.end_window(_WINDOW, sync_execution=False, cancel=True))
        if wait:
            self._learn(len(self._pending))
        self._pending.clear()

    def summary(self, epochs: int) -> Summary:
        """What the training used in so many epochs."""
        return Summary(
            ending=TrainingEnd.ENDED,
            epochs=epochs,
            metric=None,
            joules=self.joules,
            seconds=self.seconds,
            include=self._include,
            waiting=self._waits.so_far(None, Use(self.joules, self.seconds)),
        )

    def values(self) -> dict[str, float]:
        """The values to log: the newest stretch of steps whose energy is known, and the sum of all stretches."""
        if self._crew.size == 1:
            self._learn(self._known())
        total = {"zeus/joules": self.joules} if self.seconds and math.isfinite(self.joules) else {}
        return self._latest | total | (self._worth() if total else {})

    def _worth(self) -> dict[str, float]:
        """Kilowatt-hours, money and carbon of the training so far, as far as they are given and known."""
        hourly = self._hours.hourly(self.joules, wait=False)
        if hourly is None:
            return {}
        found = hourly.footprint
        values = {"zeus/kwh": found.kwh, "zeus/money": found.money, "zeus/gco2e": found.gco2e}
        return {name: value for name, value in values.items() if value is not None}

    def _known(self) -> int:
        """How many of the oldest stretches can be read without waiting."""
        return sum(1 for _ in itertools.takewhile(lambda stretch: stretch.measurement.is_ready, self._pending))

    def _learn(self, ready: int) -> None:
        """Add up the stretches whose energy is known on every rank. If a rank is lost, the sum is unknown."""
        try:
            self._add_up(ready)
        except DeviceError:
            self.joules, self._latest = math.nan, {}
            self._pending.clear()

    def _add_up(self, ready: int) -> None:
        count = min(self._crew.gather(ready))
        for _ in range(int(count)):
            stretch = self._pending.popleft()
            own = stretch.measurement.use(self._include)
            joules, seconds = together(self._crew, own.joules, own.seconds)
            self.joules += joules
            self.seconds += seconds
            self._hours.add(stretch.measurement)
            if stretch.steps and stretch.samples and seconds > 0:
                samples = stretch.samples * self._crew.size
                self._latest = {
                    "zeus/joules_per_step": joules / stretch.steps,
                    "zeus/joules_per_sample": joules / samples,
                    "zeus/watts": joules / seconds,
                }
                if not math.isfinite(joules):
                    self._latest = {}

    def _keep(self, measurement: Measurement) -> None:
        self._pending.append(_Stretch(self._steps, self._samples, measurement))
        self._steps = self._samples = 0
