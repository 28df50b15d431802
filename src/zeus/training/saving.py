"""What a power limit saved, or would have saved: observer mode's report (§5)."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.env import JOULES_PER_KWH, Prices
from zeus.profile import PowerProfile


@dataclass(frozen=True, slots=True)
class Saving:
    """One limit against another over the same work; negative seconds mean that it took longer."""

    from_watts: float
    to_watts: float
    joules: float
    seconds: float
    share: float  # of the energy at `from_watts`
    time_share: float
    kwh: float
    money: float | None
    currency: str
    gco2e: float | None


def compare(
    profile: PowerProfile, from_watts: float, to_watts: float, joules: float, seconds: float, prices: Prices
) -> Saving | None:
    """What going from one limit to the other saves in a run that uses this much at `from_watts`.

    None where one of the two was not measured.
    """
    measured = {one.limit_watts: one for one in profile.slices}
    if from_watts not in measured or to_watts not in measured:
        return None
    before, after = measured[from_watts], measured[to_watts]
    energy_ratio = after.joules / after.steps / (before.joules / before.steps) if before.joules else 1.0
    time_ratio = after.seconds / after.steps / (before.seconds / before.steps)
    return difference(from_watts, to_watts, joules, seconds, joules * energy_ratio, seconds * time_ratio, prices)


def difference(
    from_watts: float,
    to_watts: float,
    joules: float,
    seconds: float,
    joules_used: float,
    seconds_used: float,
    prices: Prices,
) -> Saving:
    """What a run saved that used this much in place of `joules` and `seconds` at `from_watts`.

    >>> difference(250, 150, 200.0, 10.0, 150.0, 11.0, Prices()).share
    0.25
    """
    saved = joules - joules_used
    return Saving(
        from_watts,
        to_watts,
        saved,
        seconds - seconds_used,
        saved / joules if joules else 0.0,
        1 - seconds_used / seconds if seconds else 0.0,
        saved / JOULES_PER_KWH,
        prices.money(saved),
        prices.currency,
        prices.gco2e(saved),
    )
