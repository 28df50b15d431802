"""How power readings see a card: how late, how blurred, how often. Found by experiment (docs/measuring.md)."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Sensor:
    """How a stream of power readings sees the card."""

    delay: float  # seconds from the draw to the stamp of the reading that begins to show it
    smoothing: float  # time constant of the low-pass, seconds; 0 = readings are instantaneous
    doubt: float  # how far the energy between two readings may be off, as a share of the change between them
    jitter: float  # seconds by which stamps, and so the ends of a window, may be off
    gain: float  # relative disagreement with the counter that a long average still shows
    spacing: float  # seconds from one reading to the next
    buffered: bool = False  # the driver keeps the readings, so that none is missed
    average: float = 0.0  # seconds that a reading is the mean of; 0 = none


# Found by switching loads of known times on an H200 and fitting the response of its 20 ms buffer.
SAMPLE_BUFFER = Sensor(0.005, smoothing=0.0125, doubt=0.15, jitter=0.003, gain=0.007, spacing=0.02, buffered=True)
POLLED = Sensor(delay=0.0, smoothing=0.0, doubt=0.5, jitter=0.025, gain=0.02, spacing=0.05)
# Cards that tell no instantaneous power tell the mean of the last second, which is right about half a second ago.
AVERAGED = Sensor(delay=0.5, smoothing=0.0, doubt=0.5, jitter=0.025, gain=0.02, spacing=0.05, average=1.0)


def buffer_sensor(spacing: float) -> Sensor:
    """How a driver's buffer sees the card: as the one that was studied if it looks like it, else nobody knows how.

    Then readings are joined by straight lines, and each may be the mean of some time before: 0.2 s is more than any
    sensor known to us takes.
    """
    if 0.75 <= spacing / SAMPLE_BUFFER.spacing <= 1.5:
        return SAMPLE_BUFFER
    return replace(POLLED, jitter=spacing / 2, spacing=spacing, buffered=True, average=max(0.2, 2 * spacing))
