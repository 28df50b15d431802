"""What the lines of an unmodified script say about its training: epochs done, what is charged, when to decide. Pure.

    start ──set-up?──▶ epoch line ──one epoch──▶ epoch line ──one epoch──▶ epoch line ...
                            └── metric ──┘            └── metric ──┘

Between two epoch lines lies exactly one epoch, whether such a line begins its epoch ("Epoch 3/10") or ends it ("epoch 3
done"). What differs is the time before the first: set-up alone, which is reported beside, or an epoch too, which is
charged. See docs/decisions/watching-from-outside.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Used:
    """Energy (NaN where unknown) and time."""

    joules: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Used) -> Used:
        return Used(self.joules + other.joules, self.seconds + other.seconds)

    def __sub__(self, other: Used) -> Used:
        return Used(self.joules - other.joules, self.seconds - other.seconds)


@dataclass(frozen=True, slots=True)
class Line:
    """A line that says something."""

    epoch: str | None = None  # as it names the epoch
    metric: float | None = None


@dataclass(frozen=True, slots=True)
class Epochs:
    """A training as its lines tell it; `ends` is None until it is known what an epoch line means."""

    ends: bool | None = None
    lines: int = 0  # epoch lines, each epoch's once
    name: str | None = None  # the last one's
    first: Used | None = None  # from the start to the first epoch line
    last: Used | None = None  # to the last one
    epoch: Used | None = None  # between the last two
    now: Used = Used()  # to the last line of any kind
    metric: float | None = None
    metric_at: Used | None = None  # when the first metric came after the first epoch line
    metric_first: bool = False  # an epoch's metric comes before its line
    fresh: bool = False  # a metric has come since the last epoch line
    due: bool = False  # an epoch is over and its metric known, as far as it will be: time to decide
    pending: bool = False  # an epoch is over whose metric may yet come

    def read(self, line: Line, now: Used) -> Epochs:
        """The next line, read when so much had been used since the start. A line with both is an end with its metric.

        >>> seen = Epochs().read(Line("1"), Used(0, 5)).read(Line(None, 0.7), Used(0, 14)).read(Line("2"), Used(0, 15))
        >>> seen.ends, seen.done, seen.charged(Used(0, 15)).seconds
        (False, 1, 10)
        """
        state = replace(self, now=now, due=False)
        if line.epoch is not None and line.epoch != self.name:
            state = state._epoch_line(line, now)
        if line.metric is not None:
            state = replace(
                state,
                metric=line.metric,
                metric_at=state.metric_at or (now if state.lines else None),
                fresh=True,
                due=state.due or state.pending,
                pending=False,
            )
        return state

    def _epoch_line(self, line: Line, now: Used) -> Epochs:
        both, ends, metric_first = line.metric is not None, self.ends, self.metric_first
        if self.lines == 0:
            metric_first = self.fresh and not both and ends is not False
            ends = True if ends is None and (self.fresh or both) else ends
        elif ends is None and self.first is not None and self.metric_at is not None:
            # Evaluation follows either kind of line; what is long is the training, and it follows a beginning.
            ends = (now - self.metric_at).seconds > (self.metric_at - self.first).seconds
        complete = both or metric_first or ends is False
        begins_only = ends is False and self.lines == 0
        return replace(
            self,
            ends=ends,
            lines=self.lines + 1,
            name=line.epoch,
            first=self.first or now,
            last=now,
            epoch=now - self.last if self.last is not None else None,
            metric_first=metric_first,
            fresh=False,
            due=(complete and not begins_only) or self.pending,
            pending=not complete,
        )

    @property
    def done(self) -> int:
        """Epochs done; in doubt not the one whose metric has not come."""
        if not self.ends:
            return max(0, self.lines - 1) + (self.fresh and self.lines > 0)
        return self.lines + (self.metric_first and self.fresh)

    @property
    def set_up(self) -> Used:
        """What was used before the first epoch, where that is known; in doubt nothing, so that no epoch is lost."""
        return self.first if self.ends is False and self.first is not None else Used()

    def charged(self, now: Used) -> Used:
        """What the training has used, of all that was used since the start."""
        return now - self.set_up
