"""The one line that a training prints at its end, however many callbacks of Zeus its Trainer has.

each callback: join ──▶ training ──▶ leave with what it knows ──▶ the last one prints a line for all
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field, replace
from enum import IntEnum

from zeus.distributed.notice import say, say_here
from zeus.training.summary import Summary, sentence


class Part(IntEnum):
    """What a callback knows about a training. The first one that is present tells what the training used."""

    TRIAL = 0  # how the trial ended
    POWER_LIMIT = 1  # the power limit and what it saved
    ENERGY = 2  # only what the training used


@dataclass(slots=True)
class _Line:
    open: int = 0  # callbacks that have not left yet
    told: dict[Part, Summary] = field(default_factory=dict)


_lines: dict[int, _Line] = {}  # by the id of the object that all callbacks of a Trainer receive


def join(trainer: object) -> None:
    """A callback takes part in this training, and will call `leave`."""
    if id(trainer) not in _lines:
        _lines[id(trainer)] = _Line()
        weakref.finalize(trainer, _lines.pop, id(trainer), None)
    _lines[id(trainer)].open += 1


def leave(trainer: object, part: Part, summary: Summary | None) -> None:
    """A callback has seen the end of the training. `summary` is None if it has nothing to tell."""
    line = _lines.get(id(trainer))
    if line is None or not line.open:
        return
    line.open -= 1
    if summary is not None:
        line.told[part] = summary
    if not line.open and line.told:
        tell(merged(line.told))
        line.told = {}


def tell(summary: Summary) -> None:
    """Print the line of a training on the first rank. Another rank tells only how long it waited, if that was long."""
    say(sentence(summary))
    waiting = summary.waiting
    if waiting.rank and waiting.is_noticeable(summary.seconds):
        say_here(f"rank {waiting.rank} {waiting}")


def merged(told: dict[Part, Summary]) -> Summary:
    """One summary of all that callbacks know."""
    first, power = told[min(told)], told.get(Part.POWER_LIMIT)
    if power is None:
        return first
    return replace(
        first,
        waiting=power.waiting,
        limit=power.limit,
        found_limit=power.found_limit,
        mode=power.mode,
        saving=power.saving,
        why_not=power.why_not,
    )
