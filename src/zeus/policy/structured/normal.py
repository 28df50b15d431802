"""Expectations under a normal distribution, in closed form."""

from __future__ import annotations

import math

_ROOT2 = math.sqrt(2)
_ROOT2PI = math.sqrt(2 * math.pi)
_MOST = 700.0  # exp of more overflows


def cdf(z: float) -> float:
    """The probability that a standard normal variable is below z."""
    return 0.5 * math.erfc(-z / _ROOT2)


def exp(x: float) -> float:
    """e^x, capped before it overflows."""
    return math.exp(min(x, _MOST))


def gain(mean: float, deviation: float) -> float:
    """The expected saving of the better of two: E[max(0, 1 - e^y)], where y, the log of their ratio, is normal.

    >>> round(gain(-0.5, 0.0), 4), round(gain(0.0, 0.5), 4), gain(50.0, 0.5)
    (0.3935, 0.1504, 0.0)
    """
    if deviation < 1e-6:
        return max(0.0, 1 - exp(mean))
    z = -mean / deviation
    return max(0.0, cdf(z) - exp(mean + deviation * deviation / 2) * cdf(z - deviation))


def above(mean: float, variance: float, noise: float, least: float) -> tuple[float, float] | None:
    """The observation of x, with its variance, that is worth as much as knowing that y = x + noise exceeds `least`.

    It moves a normal belief about x to the mean and variance of x given y > least. None if that is hardly any change.

    >>> value, doubt = above(0.0, 1.0, 0.1, 1.0)
    >>> value > 1.0, above(0.0, 1.0, 0.1, -5.0)
    (True, None)
    """
    spread = math.sqrt(variance + noise)
    z = (least - mean) / spread
    there = cdf(-z)
    # Far out, the tail is nearly exponential, and its mean lies just beyond the bound.
    steep = math.exp(-z * z / 2) / (_ROOT2PI * there) if there > 1e-12 else z + 1 / z
    narrowed = steep * (steep - z)  # share by which the variance of y shrinks, 0 to 1
    if narrowed * variance < 0.01 * spread * spread:
        return None
    doubt = (spread * spread - variance * min(narrowed, 0.999)) / min(narrowed, 0.999)
    return mean + steep * spread / min(narrowed, 0.999), doubt


def beyond(mean: float, deviation: float, least: float, most: float = math.inf) -> float:
    """E[x | x > least] for log-normal x, where a run that reaches `most` is given up and 1 is paid to start over.

    >>> beyond(math.log(10), 0.1, 1) < 10.1, beyond(math.log(10), 0.1, 30) > 30
    (True, True)
    >>> round(beyond(0.0, 0.1, 0.0, 2.0), 3), beyond(9.0, 0.1, 0.0, 2.0), beyond(0.0, 0.1, 2.5, 2.0)
    (1.005, 3.0, 3.0)
    """
    if least >= most:
        return most + 1
    low = (math.log(least) - mean) / deviation if least > 0 else -math.inf
    high = (math.log(most) - mean) / deviation
    there = cdf(-low)
    if there < 1e-12:  # far out in the tail: the first term of its expansion
        return min(least * (1 + deviation / max(low, 1.0)), most + 1)
    within = exp(mean + deviation * deviation / 2) * (cdf(deviation - low) - cdf(deviation - high))
    given_up = cdf(-high) * (most + 1) if most < math.inf else 0.0
    return max(least, (within + given_up) / there)
