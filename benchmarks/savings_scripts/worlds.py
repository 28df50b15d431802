"""Jobs with a known truth: what an epoch uses, how many epochs a run needs, how runs differ, how the data grow.

Energy and time are pairs (joules, seconds) in one array. A run of N epochs in recurrence t uses

    (W + N · epoch(size, card, limit) · level(t)) · day(t) · noise        noise: of the run, its mean is 1

where W is the warm-up, which does not grow with the data, and an epoch includes its evaluation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Pair: TypeAlias = NDArray[np.float64]  # joules, seconds
WATCHED, STEPS, TOTALS = "watched", "steps", "totals"
NONE, TREND, UNEVEN, JUMP = "none", "trend", "uneven", "jump"
IDLE = 0.15  # power of a warm-up that waits, as a share of the usual power
ETA = 0.5
TARGET = 0.9
GRID = np.array([NormalDist().inv_cdf((place + 0.5) / 2000) for place in range(2000)])  # quantiles of the luck


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU model, and how this job runs on it."""

    name: str
    limits: tuple[float, ...]  # watts, highest first
    speed: float  # seconds of an epoch, relative to the first card
    draw: float  # power, as a share of the highest limit
    slower: float  # time at the lowest limit, relative to the highest
    saves: float  # energy at the lowest limit, relative to the highest

    @property
    def top(self) -> float:
        return self.limits[0]

    def ratio(self, limit: float) -> Pair:
        """What an epoch uses at this limit, divided by what it uses at the highest."""
        lowered = (self.top - limit) / (self.top - self.limits[-1])
        return np.array([1 - (1 - self.saves) * math.sqrt(lowered), 1 + (self.slower - 1) * lowered**2])


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One job. Chances are of each trial."""

    number: int
    way: str
    recurrences: int
    sizes: tuple[int, ...]
    default: int
    fewest: float  # epochs of the size that needs the fewest
    fewest_at: float  # log2 of that size
    bend: float  # how fast the epochs rise beside it
    luck: float  # relative deviation of a run's number of epochs
    max_epochs: int
    samples: int
    small: float  # Bs: an epoch's time is proportional to 1 + Bs / b
    epoch_seconds: float  # of an infinite batch size
    cards: tuple[Card, ...]
    moves_at: int  # the first recurrence on the second card; 0: there is none
    default_first: bool  # on the second card too
    tuned: bool  # power limits
    walks: bool  # over all limits: by steps, again in the second epoch; watched, one in each epoch
    warm_up: float  # in epochs
    idle: bool  # the warm-up waits, and does no work
    at_once: bool  # the warm-up is in the first steps, and not spread over the epoch
    evaluation: float  # as a share of an epoch
    noise: tuple[float, float]  # between runs: relative deviations of joules and seconds
    correlation: float  # between the two
    within: float  # relative deviation of an epoch within its run
    growth: str
    jump_at: int  # the first recurrence after the jump; 0: there is none
    levels: tuple[float, ...]  # by recurrence
    days: tuple[float, ...]  # factors on seconds, by recurrence; all 1 unless noise lasts over days
    baseline_every: int
    crashes: float
    losses: float
    unknown: float  # energy

    @property
    def lasting(self) -> bool:
        """Whether there is noise that lasts over days."""
        return any(day != 1 for day in self.days)

    def card(self, recurrence: int) -> Card:
        return self.cards[1 if self.moves_at and recurrence >= self.moves_at else 0]

    def training(self, size: int, card: Card, limit: float) -> Pair:
        """One epoch without its evaluation, on the data of the first recurrence."""
        seconds = self.epoch_seconds * card.speed * (1 + self.small / size)
        watts = card.top * card.draw * (0.6 + 0.4 * size / (size + self.small))
        use: Pair = np.array([watts * seconds, seconds]) * card.ratio(limit)
        return use

    def warming(self, size: int, card: Card, limit: float) -> Pair:
        """The warm-up. One that waits does so at any limit."""
        power: Pair = np.array([IDLE if self.idle else 1.0, 1.0])
        return power * self.warm_up * self.training(size, card, card.top if self.idle else limit)

    def steps(self, size: int, recurrence: int) -> int:
        return max(1, round(self.samples * self.levels[recurrence - 1] / size))

    def day(self, recurrence: int) -> Pair:
        """The factor of the day. A slow machine does not use as much more energy as it uses time."""
        return np.array([self.days[recurrence - 1] ** 0.7, self.days[recurrence - 1]])

    def mean_epochs(self, size: int) -> float:
        return self.fewest * (1 + self.bend * (math.log2(size) - self.fewest_at) ** 2)

    def epochs(self, size: int, luck: Any) -> Any:
        """Epochs to the target for a standard normal `luck`, which may be an array."""
        spread = math.sqrt(math.log1p(self.luck**2))
        return np.maximum(1, np.rint(self.mean_epochs(size) * np.exp(spread * luck - spread**2 / 2)))

    def expected_default(self, recurrence: int, *, on_that_day: bool = True) -> Pair:
        """The mean use of a run of the default size at the highest limit, if it reaches the target."""
        card = self.card(recurrence)
        lengths = self.epochs(self.default, GRID)
        epochs = float(lengths[lengths <= self.max_epochs].mean())
        epoch = self.training(self.default, card, card.top) * (1 + self.evaluation) * self.levels[recurrence - 1]
        use = epochs * epoch + self.warming(self.default, card, card.top)
        return use * self.day(recurrence) if on_that_day else use


def draw_world(rng: np.random.Generator, number: int) -> World:
    """A job as it may come."""
    chance = rng.random
    smallest, count = 2 ** int(rng.integers(3, 7)), int(rng.integers(4, 8))
    sizes = tuple(smallest * 2**place for place in range(count))
    default = int(sizes[int(rng.integers(count))])
    fewest = float(np.exp(rng.uniform(math.log(2), math.log(25))))
    fewest_at = math.log2(smallest) + float(rng.uniform(0, count - 1))
    bend = float(rng.uniform(0.03, 0.3))
    default_epochs = fewest * (1 + bend * (math.log2(default) - fewest_at) ** 2)
    recurrences = round(float(np.exp(rng.uniform(math.log(3), math.log(40)))))
    way = str(rng.choice([WATCHED, STEPS, TOTALS], p=[0.4, 0.35, 0.25]))
    two = bool(chance() < 0.12) and recurrences >= 4
    seconds_noise = float(np.exp(rng.uniform(math.log(0.03), math.log(0.25))))
    growth = str(rng.choice([NONE, TREND, UNEVEN, JUMP], p=[0.6, 0.14, 0.13, 0.13]))
    jump_at = int(rng.integers(2, recurrences + 1)) if growth == JUMP else 0
    lasting = bool(chance() < 0.15) and growth == NONE
    at_once = bool(chance() < 0.5)
    return World(
        number=number,
        way=way,
        recurrences=recurrences,
        sizes=sizes,
        default=default,
        fewest=fewest,
        fewest_at=fewest_at,
        bend=bend,
        luck=float(rng.uniform(0, 0.25)),
        max_epochs=math.ceil(default_epochs * rng.uniform(2.2, 4)),
        samples=sizes[-1] * int(rng.integers(30, 300)),
        small=float(smallest * np.exp(rng.uniform(math.log(0.3), math.log(8)))),
        epoch_seconds=float(np.exp(rng.uniform(math.log(5), math.log(600)))),
        cards=tuple(draw_card(rng, name) for name in ("Tesla V100-PCIE-32GB", "NVIDIA A40")[: 1 + two]),
        moves_at=recurrences // 2 + 1 if two else 0,
        default_first=bool(chance() < 0.6),
        tuned=bool(chance() < (0.25 if way == TOTALS else 0.6)),
        walks=bool(chance() < 0.5) or (way == STEPS and at_once),
        warm_up=float(rng.uniform(0, 5)) if chance() < 0.5 else 0.0,
        idle=bool(chance() < 0.5),
        at_once=at_once,
        evaluation=float(rng.uniform(0, 0.5)) if chance() < 0.6 else 0.0,
        noise=(max(0.02, seconds_noise * float(rng.uniform(0.5, 0.9))), seconds_noise),
        correlation=float(rng.choice([0.0, 0.9])),
        within=float(rng.uniform(0.002, 0.02)),
        growth=growth,
        jump_at=jump_at,
        levels=draw_levels(rng, growth, recurrences, jump_at),
        days=draw_days(rng, recurrences) if lasting else (1.0,) * recurrences,
        baseline_every=10 if chance() < 0.2 and recurrences >= 10 else 0,
        crashes=0.08 if chance() < 0.15 else 0.0,
        losses=0.08 if chance() < 0.12 else 0.0,
        unknown=0.1 if chance() < 0.1 else 0.0,
    )


def draw_card(rng: np.random.Generator, name: str) -> Card:
    top, lowest = (250, 100) if "V100" in name else (300, 150)
    second = float("V100" not in name)
    return Card(
        name,
        tuple(float(watts) for watts in range(top, lowest - 1, -25)),
        speed=float(np.exp(second * rng.uniform(-0.5, 0.5))),
        draw=float(rng.uniform(0.6, 0.95)),
        slower=float(rng.uniform(1, 1.3)),
        saves=float(rng.uniform(0.65, 1)),
    )


def draw_levels(rng: np.random.Generator, growth: str, recurrences: int, jump_at: int) -> tuple[float, ...]:
    """How large the data are in each recurrence, relative to the first."""
    times = np.arange(1, recurrences + 1)
    match growth:
        case "trend":
            levels = (1 + rng.uniform(-0.02, 0.05)) ** (times - 1)
        case "uneven":
            steps = rng.normal(0, rng.uniform(0.02, 0.1), recurrences) * (rng.random(recurrences) < 0.6)
            levels = np.exp(np.cumsum(steps) - steps[0])
        case "jump":
            levels = np.where(times >= jump_at, 1 + rng.uniform(-0.4, 1), 1.0)
        case _:
            levels = np.ones(recurrences)
    return tuple(float(level) for level in levels)


def draw_days(rng: np.random.Generator, recurrences: int) -> tuple[float, ...]:
    """Noise that is much the same from one recurrence to the next: correlation 0.8."""
    spread, lasts = float(rng.uniform(0.03, 0.15)), 0.8
    now, days = float(rng.normal()), []
    for _ in range(recurrences):
        days.append(math.exp(spread * now - spread**2 / 2))
        now = lasts * now + math.sqrt(1 - lasts**2) * float(rng.normal())
    return tuple(days)
