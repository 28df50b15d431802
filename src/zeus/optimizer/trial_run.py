"""A trial that runs in this process: feeds measurements to its engine and carries out the engine's actions."""

from __future__ import annotations

from collections.abc import Callable

from zeus.cost import Use
from zeus.distributed.crew import Crew, broadcast
from zeus.job import Ending, Kind
from zeus.optimizer.recorder import Recorder
from zeus.trial.driver import Driver
from zeus.trial.engine import LOOKS, AskPolicy, TrialEngine

UNCOUNTED_STEPS = 10  # between two looks at the cost if the steps per epoch are not known


class TrialRun(Driver):
    """Connects the engine, the recorder and the policy. Every rank makes the same calls.

    Args:
        engine: The engine of the trial.
        recorder: Measures the trial.
        crew: The ranks that train together. Only the rank that writes asks and reports; all get the same answer.
        ask: Asks the policy whether to go on.
        tell_epoch: Called with what an epoch uses.
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
        self._is_first = True  # whether no step of this process has ended yet

    def step_begins(self) -> None:
        """A training step begins. If the limit changed since the last step, that step is cut off first."""
        if self._steps and self.recorder.limit_changed:
            self.cut_steps(wait=False)

    def step(self) -> None:
        """A training step has ended. Steps are cut when the limit has changed or a look at the cost is due."""
        self._steps += 1
        if self._is_first and (self.engine.steps_per_epoch or 0) >= LOOKS:
            self.recorder.cut(Kind.STEP, 0, wait=False)  # the first step loads libraries: it is not an example
            self._steps, self._is_first = 0, False
            return
        if self.recorder.limit_changed or self._steps >= self._look_after:
            self.cut_steps(wait=False)
            self.feed(*self.recorder.ready())

    @property
    def _look_after(self) -> float:
        """Steps between two looks at the cost. Without a cost limit there are none."""
        if self.engine.terms.cost_limit is None:
            return float("inf")
        steps = self.engine.steps_per_epoch
        if steps is None:
            return UNCOUNTED_STEPS if self._crew.size == 1 else float("inf")
        return max(1, steps // LOOKS)

    def cut_steps(self, *, wait: bool = True) -> None:
        """Cut off the steps since the last cut."""
        if self._steps:
            self.recorder.cut(Kind.STEP, self._steps, wait=wait)
            self._steps = 0

    def cut(self, kind: Kind, count: int) -> None:
        """End a piece, and wait for its energy and that of the pieces before it."""
        self.cut_steps()
        self.recorder.cut(kind, count)
        self.feed(*self.recorder.all())

    def close(self, *, alone: bool) -> None:
        """Stop measuring. With `alone`, do not wait for other ranks, which may be gone."""
        self.cut_steps(wait=not alone)
        self.recorder.cut(Kind.EVALUATION, 0, wait=not alone)
        self.recorder.end()
        self.feed(*(self.recorder.alone() if alone else self.recorder.all()))
        if self.engine.ending is Ending.STOPPED:  # perhaps inside an epoch: what it used since is charged too
            self.outcome = self.engine.outcome(self.engine.ending)
