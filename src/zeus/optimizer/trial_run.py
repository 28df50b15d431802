"""A trial that runs in this process: feeds its engine what the recorder measures, and carries out what it answers."""

from __future__ import annotations

from collections.abc import Callable

from zeus.cost import Use
from zeus.distributed.crew import Crew, broadcast
from zeus.job import Ending, Kind
from zeus.optimizer.recorder import Recorder
from zeus.trial.driver import Driver
from zeus.trial.engine import LOOKS, AskPolicy, TrialEngine

UNCOUNTED_STEPS = 10  # between two looks where nobody knows how many steps an epoch has


class TrialRun(Driver):
    """The engine, the recorder and whoever is asked, together. Every rank makes the same calls.

    Args:
        engine: The trial.
        recorder: Measures it.
        crew: The ranks that train together; the one that writes asks and tells, and all hear the same.
        ask: The policy's word on going on.
        tell_epoch: Told what an epoch uses.
    """

    def __init__(
        self,
        engine: TrialEngine,
        recorder: Recorder,
        crew: Crew,
        *,
        ask: Callable[[AskPolicy], bool] = lambda question: True,
        tell_epoch: Callable[[Use], None] = lambda use: None,
    ) -> None:
        super().__init__(
            engine,
            ask=lambda question: broadcast(ask(question) if crew.writes else True),
            tell_epoch=lambda use: tell_epoch(use) if crew.writes else None,
        )
        self.recorder = recorder
        self._crew = crew
        self._steps = 0  # since the last cut
        self._is_first = True  # no step of this process has ended

    def step_begins(self) -> None:
        """A training step begins: a limit that was changed since the last one is none of that one's."""
        if self._steps and self.recorder.limit_changed:
            self.cut_steps(wait=False)

    def step(self) -> None:
        """A training step has ended. It is told when the limit has changed, or when a look at the cost is due."""
        self._steps += 1
        if self._is_first and (self.engine.steps_per_epoch or 0) >= LOOKS:
            self.recorder.cut(Kind.STEP, 0, wait=False)  # libraries load and kernels are chosen in it: no example
            self._steps, self._is_first = 0, False
            return
        if self.recorder.limit_changed or self._steps >= self._look_after:
            self.cut_steps(wait=False)
            self.feed(*self.recorder.ready())

    @property
    def _look_after(self) -> float:
        """Steps between two looks: only a trial with a bound is looked at."""
        if self.engine.terms.cost_limit is None:
            return float("inf")
        steps = self.engine.steps_per_epoch
        if steps is None:
            return UNCOUNTED_STEPS if self._crew.size == 1 else float("inf")
        return max(1, steps // LOOKS)

    def cut_steps(self, *, wait: bool = True) -> None:
        """What the steps since the last cut used."""
        if self._steps:
            self.recorder.cut(Kind.STEP, self._steps, wait=wait)
            self._steps = 0

    def cut(self, kind: Kind, count: int) -> None:
        """A piece ends; its energy, and that of those before it, is waited for."""
        self.cut_steps()
        self.recorder.cut(kind, count)
        self.feed(*self.recorder.all())

    def close(self, *, alone: bool) -> None:
        """Nothing more is measured; `alone` where the other ranks may be elsewhere."""
        self.cut_steps(wait=not alone)
        self.recorder.cut(Kind.EVALUATION, 0, wait=not alone)
        self.recorder.end()
        self.feed(*(self.recorder.alone() if alone else self.recorder.all()))
        if self.engine.ending is Ending.STOPPED:  # inside an epoch, perhaps, whose rest is charged too
            self.outcome = self.engine.outcome(self.engine.ending)
