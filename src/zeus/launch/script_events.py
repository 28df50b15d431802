"""Turns the lines of an unmodified script into the events of a trial. Pure.

    start ──set-up?──▶ epoch line ──one epoch──▶ epoch line ──one epoch──▶ epoch line ...
                            └── metric ──┘            └── metric ──┘

An epoch line may begin its epoch ("Epoch 3/10") or end it ("epoch 3 done"). Either way, exactly one epoch lies between
two of them. The difference is the time before the first line: it is set-up alone, which is recorded but not charged, or
set-up with an epoch, which is charged. Until that is known, this use is held back. The time between a line that ends an
epoch and its metric is evaluation. It is charged when the metric arrives, because nothing may follow. See
docs/decisions.md#watching-from-outside.
"""

from __future__ import annotations

from dataclasses import dataclass

from zeus.cost import ZERO, Use
from zeus.job import Kind, replace
from zeus.trial.engine import EpochBegan, EpochEnded, Evaluated, Event, Measured, SamplesCounted


@dataclass(frozen=True, slots=True)
class Line:
    """A line that names an epoch, a metric, the samples of an epoch, or several of them."""

    epoch: str | None = None  # name of the epoch, as written
    metric: float | None = None
    samples: int | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """The state of a training, as read from its lines."""

    ends: bool | None = None  # whether an epoch line ends its epoch (else it begins it); None: not known yet
    lines: int = 0  # epoch lines; repeats of the same epoch do not count
    name: str | None = None  # of the last epoch line
    last: Use = ZERO  # used from the start to the last event
    held: Use | None = None  # used from the start to the first epoch line, while its meaning is not known
    metric: float | None = None  # the latest metric, while it is held back too
    metric_at: Use | None = None  # used from the start to that metric
    in_epoch: bool = False  # whether EpochBegan was emitted
    awaits: bool = False  # whether an epoch has ended whose metric may still come
    leads: bool = False  # whether metrics come before the lines that end their epochs

    def read(
        self, line: Line, now: Use, limit: float | None = None, *, is_last: bool = False
    ) -> tuple[Script, list[Event]]:
        """Read the next line. A line with epoch and metric ends the epoch.

        Args:
            line: The line.
            now: Use since the start.
            limit: Power limit in force since the last line, in watts.
            is_last: Whether its metric ends the trial, and with it the epoch.

        >>> seen, events = Script(), []
        >>> for line, seconds in ((Line("1"), 5.0), (Line(None, 0.7), 14.0), (Line("2"), 15.0)):
        ...     seen, more = seen.read(line, Use(0.0, seconds))
        ...     events += more
        >>> seen.ends, [one.use.seconds for one in events if isinstance(one, Measured)]
        (False, [5.0, 10.0])
        """
        state, events = self, list[Event]()
        if line.samples is not None:
            events.append(SamplesCounted(line.samples))
        if line.epoch is not None and line.epoch != self.name:
            state, more = state._epoch_line(line, now, limit)
            events += more
        if line.metric is not None:
            state, more = state._metric_line(line.metric, now, limit, is_last)
            events += more
        return state, events

    def close(self, now: Use, limit: float | None = None) -> list[Event]:
        """The script has ended by itself: charge what it used since the last line.

        If the meaning of its lines is still not known, charge the time before the first line too. One more epoch then
        lies either before the first line or after the last.
        """
        rest: list[Event] = [Measured(Kind.EPOCH, 0, now - self.last + (self.held or ZERO), limit)]
        if self.held is None:
            return rest
        began: list[Event] = [] if self.in_epoch else [EpochBegan()]
        metric: list[Event] = [] if self.metric is None else [EpochEnded(), Evaluated(self.metric)]
        return [*began, *rest, *metric]

    def _epoch_line(self, line: Line, now: Use, limit: float | None) -> tuple[Script, list[Event]]:
        ends = self.ends
        if ends is None and self.lines == 0 and (self.metric is not None or line.metric is not None):
            ends = True  # a metric before or with the first line means that an epoch is over
        elif ends is None and self.metric_at is not None:
            # Evaluation is shorter than training, and training follows a line that begins an epoch.
            ends = (now - self.metric_at).seconds > (self.metric_at - self.last).seconds
        leads = self.leads
        if self.lines == 0 and self.metric_at is not None:  # training came before it, unless it evaluated no epoch
            leads = self.metric_at.seconds > (now - self.metric_at).seconds
        state = replace(self, ends=ends, lines=self.lines + 1, name=line.epoch, leads=leads)
        events: list[Event] = []
        if self.lines == 0:
            if ends is None:
                return replace(state, held=now, last=now), []
            if ends:
                state, events = state._epoch(now, limit)
            else:
                events = [Measured(Kind.SET_UP, 1, now, limit)]
        else:
            if ends is not None and self.held is not None:
                state, events = state._resolved(limit)
            state, more = state._epoch(now - state.last, limit)
            events += more
        if ends is False:
            state, events = replace(state, in_epoch=True, awaits=False), [*events, EpochBegan()]
        return replace(state, last=now, metric_at=None), events

    def _resolved(self, limit: float | None) -> tuple[Script, list[Event]]:
        """Emit what was held back, now that the meaning of the first line is known."""
        held = self.held or ZERO
        metric: list[Event] = [] if self.metric is None else [Evaluated(self.metric)]
        state = replace(self, held=None, metric=None)
        if not self.ends:
            return replace(state, in_epoch=True), [Measured(Kind.SET_UP, 1, held, limit), EpochBegan(), *metric]
        if self.lines > 2:  # later epochs were emitted already: add one that is not an example of a steady epoch
            return state, [EpochBegan(), Measured(Kind.EPOCH, 0, held, limit), EpochEnded(), *metric]
        state, events = state._epoch(held, limit)
        if metric and self.metric_at is not None:
            events += _evaluation(self.metric_at - self.last, limit)
            state = replace(state, last=self.metric_at)
        return replace(state, awaits=not metric), [*events, *metric]

    def _epoch(self, use: Use, limit: float | None) -> tuple[Script, list[Event]]:
        began: list[Event] = [] if self.in_epoch else [EpochBegan()]
        ended: list[Event] = [Measured(Kind.EPOCH, 1, use, limit), EpochEnded()]
        return replace(self, in_epoch=False, awaits=not self.leads), [*began, *ended]

    def _metric_line(self, metric: float, now: Use, limit: float | None, is_last: bool) -> tuple[Script, list[Event]]:
        began: list[Event] = [] if self.in_epoch or self.awaits else [EpochBegan()]
        if is_last:
            whole = now - self.last + (self.held or ZERO)
            kind, count = (Kind.EVALUATION, 0) if self.awaits else (Kind.EPOCH, 1)
            state = replace(self, last=now, held=None, awaits=False)
            return state, [*began, Measured(kind, count, whole, limit), Evaluated(metric)]
        state = replace(self, metric_at=self.metric_at or now)
        if self.held is not None and self.lines == 1:
            return replace(state, metric=metric), []
        if self.lines == 0:
            state = replace(state, metric=metric)
        evaluation: list[Event] = []
        if self.awaits and self.ends:  # charged now, because the epoch that has ended may be the last
            state, evaluation = replace(state, last=now), _evaluation(now - self.last, limit)
        state = replace(state, in_epoch=self.in_epoch or bool(began), awaits=False)
        return state, [*began, *evaluation, Evaluated(metric)]


def _evaluation(use: Use, limit: float | None) -> list[Event]:
    return [Measured(Kind.EVALUATION, 1, use, limit)] if use.seconds > 0 else []
