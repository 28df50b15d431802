"""A trial that runs in this process: feeds measurements to its engine and carries out the engine's actions.

Under `zeus profile` it ends the process as soon as enough is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from zeus.client.profile_folder import ProfileFolder
from zeus.client.running import start_terms
from zeus.cost import GPU_ONLY, ZERO, Include, Use
from zeus.distributed.group import RankGroup, broadcast
from zeus.errors import DeviceError
from zeus.job import Ending, Kind, Outcome, replace
from zeus.launcher_env import LauncherEnv
from zeus.monitor import ZeusMonitor
from zeus.optimizer.counter_notes import CounterNotes
from zeus.optimizer.recorder import Recorder
from zeus.trial.driver import Driver
from zeus.trial.engine import LOOKS, AskPolicy, Evaluated, Event, Measured, TrialEngine
from zeus.trial.quick_profile import is_enough

UNCOUNTED_STEPS = 10  # between two looks at the cost if the steps per epoch are not known
PROFILE_STEPS, PROFILE_SECONDS = 2, 0.5  # under `zeus profile`: until the first look, and between looks


class TrialRun(Driver):
    """Connects the engine, the recorder and the policy. Every rank makes the same calls.

    Args:
        engine: The engine of the trial.
        monitor: Measures the GPUs of this rank.
        group: The ranks that train together. Only the rank that writes asks and reports; all get the same answer.
        include: Whose energy counts.
        ask: Asks the policy whether to go on.
        tell_epoch: Called with what an epoch uses.
        orders: What the launcher that has opened the trial says. It may have to start the trial again, and under
            `zeus profile` the process ends as soon as enough is measured. None: no launcher has opened it.
    """

    def __init__(
        self,
        engine: TrialEngine,
        monitor: ZeusMonitor,
        group: RankGroup,
        include: Include = GPU_ONLY,
        *,
        ask: Callable[[AskPolicy], bool] = lambda question: True,
        tell_epoch: Callable[[Use], None] = lambda use: None,
        orders: LauncherEnv | None = None,
    ) -> None:
        notes = None if orders is None else CounterNotes(orders, monitor, group, include)

        def asked(question: AskPolicy) -> bool:
            taken = {} if notes is None else notes.take(question.so_far)  # other ranks still wait for the answer
            go_on = _for_all(ask(question) if group.writes else True)
            if notes is not None:
                notes.keep(taken)
            return go_on

        super().__init__(
            engine if orders is None else replace(engine, terms=replace(engine.terms, **start_terms(orders))),
            ask=asked,
            tell_epoch=lambda use: tell_epoch(use) if group.writes else None,
            priced=lambda outcome: self.recorder.priced(outcome) if group.writes else outcome,
        )
        self.recorder = Recorder(monitor, group, self._on_segment, include, is_trial=True)
        self._group = group
        self._quick = None if orders is None else ProfileFolder.of(orders)
        self._notes = notes
        self._is_first = True  # whether no step of this process has ended yet

    # ------------------------------------------------------------------ begin and end

    def begin(self) -> None:
        """Start measuring. Every rank must call this."""
        self.recorder.begin()

    def resume(self, epochs: int, so_far: Outcome | None) -> None:
        """Continue what earlier starts of this trial have begun. Every rank must call this, when it measures already.

        Args:
            epochs: Finished epochs in the checkpoint that training continues from.
            so_far: What the trial had used when it last reported.
        """
        terms, known = self.engine.terms, self.engine.known
        lost = ZERO if self._notes is None else self._notes.lost(so_far)
        if epochs or so_far is not None or lost != ZERO:
            self.engine = TrialEngine.resumed(terms, known, epochs, so_far, lost)
        if self._notes is not None and lost == ZERO:  # otherwise the old notes stay: the part is not reported yet
            self._notes.keep(self._notes.take(self.engine.so_far))

    def end(self) -> None:
        """Stop measuring. What was used until now can still be delivered."""
        self.recorder.end()

    def close(self, *, alone: bool) -> None:
        """Stop measuring. With `alone`, do not wait for other ranks, which may be gone."""
        self.recorder.cut(Kind.EVALUATION, 0, wait=not alone)
        self.end()
        self.recorder.deliver(wait=True, alone=alone)
        if self.engine.ending is Ending.STOPPED:  # perhaps inside an epoch: what it used since is charged too
            self.outcome = self.priced(self.engine.outcome(self.engine.ending))

    # ------------------------------------------------------------------ what happens

    def _on_segment(self, segment: Measured) -> None:
        self.feed(segment)

    def feed(self, *events: Event) -> None:
        super().feed(*events)
        if self._notes is not None and self.engine.ending in (Ending.CONVERGED, Ending.NOT_CONVERGED, Ending.STOPPED):
            self._notes.remove()
            self._notes = None

    def cut(self, kind: Kind, count: int) -> None:
        """End a segment, and wait for its energy and that of the segments before it."""
        self.recorder.cut(kind, count)
        self.recorder.deliver(wait=True)

    def evaluated(self, metric: Any) -> list[Evaluated]:
        """The event of the first rank's metric. Every rank must call this.

        There is none if a rank is lost: with metrics of their own, ranks would stop at different epochs.
        """
        mine = metric.detach() if hasattr(metric, "detach") else metric  # a tensor with a gradient
        try:
            return [Evaluated(self._group.broadcast(float(mine)))]
        except DeviceError:
            return []

    def step(self) -> None:
        """A training step has ended. Steps are cut when a look at the cost is due."""
        self.recorder.step()
        if self._is_first and (self.engine.steps_per_epoch or 0) >= LOOKS:
            self.recorder.cut(Kind.STEP, 0, wait=False)  # the first step loads libraries: it is not an example
            self._is_first = False
        elif self.recorder.steps >= self._look_after:
            self.recorder.cut_steps(wait=False)
            self.recorder.deliver(wait=self._group.size > 1)
            self.end_if_profiled()

    def end_if_profiled(self) -> None:
        """Under `zeus profile`, end this process once its epochs are known. Every rank must call this.

        Raises:
            SystemExit: Enough is measured. The script's own code after its training loop must not run, because it
                would save or publish a model that is not trained.
        """
        quick = self._quick
        if quick is None:
            return
        writes, sets = self._group.writes, self.recorder.sets_limits
        if broadcast(writes and is_enough(self.engine, profiled=quick.has_profile, sets_limits=sets)):
            if writes:
                counted = self.engine.terms.steps_per_epoch  # exact: the engine leaves out the first step
                quick.put_measured(self.engine.so_far, counted or self.engine.steps_per_epoch)
            raise SystemExit(0)

    @property
    def _look_after(self) -> float:
        """Steps between two looks at the cost. Without a cost limit there are none."""
        if self._quick is not None:
            return self._profile_steps
        if self.engine.terms.cost_limit is None:
            return float("inf")
        steps = self.engine.steps_per_epoch
        if steps is None:
            return UNCOUNTED_STEPS if self._group.size == 1 else float("inf")
        return max(1, steps // LOOKS)

    @property
    def _profile_steps(self) -> int:
        """Steps between two looks under `zeus profile`. The same on all ranks, because they measure the same."""
        own = [one for one in self.engine.stretches.values() if one.kind is Kind.STEP and one.seconds > 0]
        if not own:
            return PROFILE_STEPS
        return max(1, math.ceil(PROFILE_SECONDS * sum(one.count for one in own) / sum(one.seconds for one in own)))


def _for_all(go_on: bool) -> bool:
    """The first rank's answer. If a rank is lost, all go on: they must not stop at different epochs."""
    try:
        return broadcast(go_on)
    except DeviceError:
        return True
