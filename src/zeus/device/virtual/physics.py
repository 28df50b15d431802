"""The behaviour of a GPU under a power limit: the duration and average power of one training step (§2.2 and §4.2).

A step of b samples consists of host work and GPU work that overlap. GPU work has a compute phase and a light phase:

    host     H(b) = h0 + h1 b                                             independent of the GPU's clock
    compute  C(b) = c (b + b_half) (1 + b / b_crowd) / f    drawing       P_compute b / (b + b_half) at full clock
    light    M(b) = l / f + m b (1 + b / b_crowd)           drawing       P_light at full clock
    step     T    = (H^4 + (C + M)^4)^(1/4)                               a soft maximum: launches run ahead of the GPU
    power         = idle + (C watts_compute(f) + M watts_light(f)) / T

Both phases run at one clock f, a share of the full clock. The card picks the fastest clock at which the phase that
draws more stays within the limit. Dynamic power is proportional to f V(f)^2: linear in f below the knee, where the
voltage cannot fall further, and f^exponent above it. The clock has a floor. At the floor the card may draw more than
a low limit allows, as real cards do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Final

from zeus.errors import InputError

OVERLAP: Final = 4  # how well host and GPU work overlap: 1 is not at all (a sum), infinity is perfectly (a maximum)


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU model: its limits, and how power follows its clock."""

    name: str
    min_watts: float
    max_watts: float
    default_watts: float
    idle_watts: float  # a process holds the card but nothing runs; includes leakage and memory refresh
    min_clock: float  # the floor, as a share of the full clock
    knee_clock: float  # below it the voltage stays at its lowest
    exponent: float  # dynamic power ~ clock ** exponent above the knee

    def __post_init__(self) -> None:
        if not 0 < self.min_watts <= self.default_watts <= self.max_watts < math.inf:
            raise InputError(
                f"card {self.name!r}: lowest, default and highest limits are {self.min_watts}, {self.default_watts} "
                f"and {self.max_watts} W; they must be above 0 and in that order."
            )
        if not 0 <= self.idle_watts < self.min_watts:
            raise InputError(
                f"card {self.name!r}: idle_watts is {self.idle_watts}; it must be at least 0 and below the lowest "
                f"limit, {self.min_watts} W."
            )
        if not 0 < self.min_clock <= self.knee_clock <= 1:
            raise InputError(
                f"card {self.name!r}: min_clock is {self.min_clock} and knee_clock {self.knee_clock}; they must be "
                "shares of the full clock, in that order."
            )
        if not 1 <= self.exponent < math.inf:
            raise InputError(f"card {self.name!r}: exponent is {self.exponent}; it must be at least 1.")

    def dynamic(self, clock: float) -> float:
        """Dynamic power at this clock as a share of that at full clock."""
        if clock >= self.knee_clock:
            return math.pow(clock, self.exponent)
        return clock * math.pow(self.knee_clock, self.exponent - 1)

    def clock(self, full_watts: float, limit_watts: float) -> float:
        """The fastest clock at which work that draws `full_watts` above idle at full clock stays within the limit."""
        room = limit_watts - self.idle_watts
        if full_watts <= room:
            return 1.0
        share = max(room, 0.0) / full_watts
        clock = math.pow(share, 1 / self.exponent)
        if clock < self.knee_clock:
            clock = share / math.pow(self.knee_clock, self.exponent - 1)
        return max(clock, self.min_clock)


@dataclass(frozen=True, slots=True)
class Load:
    """One training workload on one card. Seconds and watts are at full clock; watts are above idle."""

    samples_per_epoch: int
    host_seconds_per_step: float  # h0: the Python loop, launches, the optimizer's bookkeeping
    host_seconds_per_sample: float  # h1: reading and preparing input
    compute_seconds_per_sample: float  # c
    half_batch: float  # b_half: the batch size at which half of the card is used
    crowd_batch: (
        float  # b_crowd: the batch size at which padding and crowded memory double the work per sample (inf: never)
    )
    latency_seconds_per_step: float  # l: small dependent kernels, whatever the batch size
    memory_seconds_per_sample: float  # m: waiting for memory, whatever the clock
    compute_watts: float  # P_compute, with the card fully used
    light_watts: float  # P_light

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value >= 0 or (value == math.inf and field.name != "crowd_batch"):
                raise InputError(f"load: {field.name} is {value}; it must be a number of at least 0.")
        if self.samples_per_epoch < 1 or self.crowd_batch == 0:
            raise InputError(
                f"load: samples_per_epoch is {self.samples_per_epoch} and crowd_batch {self.crowd_batch}; both must be "
                "above 0."
            )
        if not any((self.host_seconds_per_sample, self.compute_seconds_per_sample, self.memory_seconds_per_sample)):
            raise InputError("load: a sample takes no time at all. Give it host, compute or memory seconds.")


@dataclass(frozen=True, slots=True)
class Operation:
    """Work done: its duration, its average power, and the card's clock (1 = full)."""

    seconds: float
    watts: float
    clock: float

    @property
    def joules(self) -> float:
        return self.seconds * self.watts


def operate(card: Card, load: Load, batch_size: int, limit_watts: float) -> Operation:
    """One training step of `batch_size` samples under this power limit."""
    if batch_size < 1:
        raise InputError(f"batch size {batch_size}: a step has at least one sample.")
    if not limit_watts > 0:
        raise InputError(f"power limit {limit_watts} W: it must be above 0.")
    used = batch_size / (batch_size + load.half_batch)
    compute_watts, light_watts = load.compute_watts * used, load.light_watts
    clock = card.clock(max(compute_watts, light_watts), min(limit_watts, card.max_watts))

    crowding = 1 + batch_size / load.crowd_batch
    compute = load.compute_seconds_per_sample * (batch_size + load.half_batch) * crowding / clock
    light = load.latency_seconds_per_step / clock + load.memory_seconds_per_sample * batch_size * crowding
    host = load.host_seconds_per_step + load.host_seconds_per_sample * batch_size
    seconds = _soft_maximum(host, compute + light)

    joules = card.dynamic(clock) * (compute_watts * compute + light_watts * light)
    watts = min(card.idle_watts + joules / seconds, card.max_watts)  # the board itself enforces its highest limit
    return Operation(seconds, watts, clock)


def epoch(card: Card, load: Load, batch_size: int, limit_watts: float) -> Operation:
    """One epoch. A last, shorter step counts in proportion to its samples."""
    step = operate(card, load, batch_size, limit_watts)
    return Operation(step.seconds * load.samples_per_epoch / batch_size, step.watts, step.clock)


def _soft_maximum(a: float, b: float) -> float:
    longer, shorter = max(a, b), min(a, b)
    return longer * math.pow(1 + math.pow(shorter / longer, OVERLAP), 1 / OVERLAP)
