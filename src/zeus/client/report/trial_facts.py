"""What a trial tells beside its sums: who runs it and where, its epochs one by one, and its power now."""

from __future__ import annotations

import math
from typing import Any

from zeus.job import TrialRecord

Json = dict[str, Any]
POINT = ("metric", "joules", "seconds", "limit_watts")


def watts_of(kept: TrialRecord) -> float | None:
    """The mean power of a running trial in its last epoch, or of all of it; None if it is not known."""
    told = kept.latest_outcome
    if told is None:
        return None
    last = told.curve[-1] if told.curve else None
    joules, seconds = (told.joules, told.seconds) if last is None else (last.joules, last.seconds)
    watts = joules / seconds if joules is not None and seconds > 0 else math.nan
    return watts if math.isfinite(watts) else None


def origin_json(kept: TrialRecord) -> Json:
    """Who runs a trial, and on which host."""
    return {name: None if kept.origin is None else getattr(kept.origin, name) or None for name in ("user", "host")}


def curve_json(kept: TrialRecord) -> list[Json]:
    """The epochs of a trial, one by one."""
    curve = () if kept.latest_outcome is None else kept.latest_outcome.curve
    return [{"epoch": one.number, **{name: getattr(one, name) for name in POINT}} for one in curve]
