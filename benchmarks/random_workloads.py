"""Randomly drawn workloads: curves of Epochs(b) and EpochCost(b) that a policy has to cope with."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from zeus.errors import InputError
from zeus.profile import LimitSlice, PowerProfile
from zeus.simulate.workload import Workload

RUNS: Final = 10  # for each batch size
WATTS: Final = tuple(range(250, 99, -25))


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """How the curves of one kind of workload are drawn. Ranges are uniform."""

    sizes: tuple[int, int] = (5, 12)  # number of batch sizes
    powers_of_two: bool = True
    default: float | None = None  # rank of b0 among the sizes, 0 (smallest) to 1 (largest); None: random
    bend: tuple[float, float] = (0.02, 0.12)  # of log Epochs, per octave squared
    slope: float = 0.25  # standard deviation of the slope of log Epochs, per octave
    rough: float = 0.08  # standard deviation of a random walk, per root octave
    hump: tuple[float, float] = (0.0, 0.0)  # height of a hump at a random size
    noise: tuple[float, ...] = (0.03, 0.08, 0.15)  # of log Epochs between runs; one of these is drawn
    never: tuple[float, float] = (0.0, 0.0)  # share of the sizes, from one end, that never reach the target
    saving: tuple[float, float] = (0.3, 1.0)  # how fast an epoch gets shorter with larger batches


KINDS: Final[dict[str, WorkloadKind]] = {
    "base": WorkloadKind(),
    "wide": WorkloadKind(sizes=(30, 30), powers_of_two=False),
    "odd": WorkloadKind(powers_of_two=False),
    "noisy": WorkloadKind(noise=(0.4,)),
    "exact": WorkloadKind(noise=(0.0,)),
    "flat": WorkloadKind(bend=(0.0, 0.0), slope=0.0, rough=0.0, saving=(0.02, 0.02)),
    "steep": WorkloadKind(bend=(0.2, 0.5), slope=0.0),
    "humps": WorkloadKind(hump=(0.4, 1.0)),
    "low": WorkloadKind(default=0.0),
    "high": WorkloadKind(default=1.0),
    "never": WorkloadKind(never=(0.1, 0.5)),
    "two": WorkloadKind(sizes=(2, 2), never=(0.5, 0.5)),
}


def worlds(kind: str, seed: int = 0) -> Iterator[Workload]:
    """Draw workloads of one kind without end. In each, at least one size always reaches the target.

    >>> next(worlds("two")).sizes == next(worlds("two")).sizes
    True
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind of workload {kind!r}. Known kinds: {', '.join(KINDS)}.")
    for number in count():
        world = _draw(f"{kind}-{seed}-{number}", KINDS[kind], random.Random(f"{kind} {seed} {number}"))
        if any(world.always_converges(size) for size in world.sizes):
            yield world


LAW_WATTS: Final = 700.0


def law_world(number: int) -> Workload:
    """A world that keeps the law of batch size: EpochCost falls until the GPU is busy, Epochs rises beyond some size.

    It is anywhere between launch-bound and compute-bound. Any size may be the default, which needs 20 to 95 % of
    max_epochs. Luck between runs is 5 to 30 %. Power tells how long the GPU waits, up to 0.15 per octave.
    """
    chance = random.Random(f"law {number}")
    while True:
        first, many = chance.randint(2, 7), chance.randint(5, 11)
        sizes = [2 ** (first + place) for place in range(many)]
        default = chance.choice(sizes)
        waits = 2 ** chance.uniform(first - 3, first + many + 1)
        critical = 2 ** chance.uniform(first - 1, first + many + 2)
        least = 2 ** chance.uniform(first - 6, math.log2(critical) - 1) if chance.random() < 0.4 else 0.0
        law = {size: 1 + size / critical + (least / size) ** 2 for size in sizes}
        needed = math.exp(chance.uniform(math.log(4), math.log(60)))  # epochs at the default
        epochs = {size: needed * of / law[default] * math.exp(chance.gauss(0, 0.04)) for size, of in law.items()}
        off = chance.gauss(0, 0.15)
        slopes = {size: -math.log(2) * waits / (size + waits) for size in sizes}
        loads = {size: min(1.0, max(0.1, 0.73 + slope + off)) for size, slope in slopes.items()}
        costs = {size: (1 + waits / size) * math.exp(chance.gauss(0, 0.02)) for size in sizes}
        most = max(2, math.ceil(needed / chance.uniform(0.2, 0.95)))
        world = _of_curves(f"law-{number}", default, epochs, costs, loads, most, chance.uniform(0.05, 0.3), chance)
        reached = sum(run is not None for run in world.runs[default])
        if min(epochs.values()) >= 2 and 2 * reached >= RUNS and any(world.always_converges(size) for size in sizes):
            return world


def launch_bound(load: float = 0.2, luck: float = 0.08, max_epochs: int = 40) -> Workload:
    """A job that starts at its largest size. The next one costs 71 % more an epoch, but needs 13 epochs instead of 30.

    It is the best size, 26 % cheaper than the default.
    """
    needed = {16: 6.5, 32: 6.5, 64: 6.8, 128: 7.5, 256: 9.0, 512: 13.0, 1024: 30.0}
    costs = {size: 1 + 2.45 * 1024 / size for size in needed}
    name = f"launch-bound, load {load:g}, luck {luck:g}, {max_epochs} epochs at most"
    chance = random.Random(name)
    return _of_curves(name, 1024, needed, costs, dict.fromkeys(needed, load), max_epochs, luck, chance)


def _of_curves(
    name: str,
    default: int,
    epochs: Mapping[int, float],
    costs: Mapping[int, float],  # of an epoch at η = 0.5, in any unit
    loads: Mapping[int, float],  # watts / MAXPOWER
    max_epochs: int,
    luck: float,
    chance: random.Random,
) -> Workload:
    """A workload on a GPU with one power limit."""
    runs: dict[int, tuple[int | None, ...]] = {}
    profiles = {}
    for size, mean in epochs.items():
        drawn = [max(1, round(mean * math.exp(chance.gauss(-luck * luck / 2, luck)))) for _ in range(RUNS)]
        runs[size] = tuple(n if n <= max_epochs else None for n in drawn)
        seconds = 2 * costs[size] / (1 + loads[size])
        profiles[size] = PowerProfile.of([LimitSlice(LAW_WATTS, 1, seconds, seconds * LAW_WATTS * loads[size])])
    return Workload(name, "drawn", LAW_WATTS, max_epochs, default, runs, profiles)


def shifted(workload: Workload, by: int, share: float = 1.0) -> Workload:
    """The same job after its data drifted: each size needs the epochs that the size `by` steps larger needed.

    With a `share` below 1 the drift is partial: epochs are interpolated between the sorted runs of both sizes.
    """
    sizes = workload.sizes
    runs: dict[int, tuple[int | None, ...]] = {}
    for place, size in enumerate(sizes):
        there = workload.runs[sizes[min(max(place + by, 0), len(sizes) - 1)]]
        runs[size] = _between(workload.runs[size], there, share)
    return replace(workload, runs=runs)


def _between(here: Sequence[int | None], there: Sequence[int | None], share: float) -> tuple[int | None, ...]:
    if share in (0.0, 1.0):
        return tuple(there if share else here)
    many = math.lcm(len(here), len(there))
    never = math.inf
    old = sorted(never if n is None else n for n in here for _ in range(many // len(here)))
    new = sorted(never if n is None else n for n in there for _ in range(many // len(there)))
    mean = [(1 - share) * a + share * b for a, b in zip(old, new, strict=True)]
    return tuple(max(1, round(n)) if math.isfinite(n) else None for n in mean)


def _draw(name: str, kind: WorkloadKind, chance: random.Random) -> Workload:
    sizes = _sizes(kind, chance)
    octaves = [math.log2(size) for size in sizes]
    default = sizes[chance.randrange(len(sizes)) if kind.default is None else round(kind.default * (len(sizes) - 1))]
    least = math.exp(chance.uniform(math.log(3), math.log(40)))
    curve = _epochs(kind, chance, octaves)
    noise, max_epochs = chance.choice(kind.noise), int(6 * least) + 5
    dead = _dead(kind, chance, [size for size in sizes if size != default])

    def run(size: int, log_epochs: float) -> int | None:
        epochs = max(1, round(least * math.exp(log_epochs + chance.gauss(0, noise))))
        return None if size in dead or epochs > max_epochs else epochs

    runs = {size: tuple(run(size, y) for _ in range(RUNS)) for size, y in zip(sizes, curve, strict=True)}
    return Workload(name, "drawn", float(WATTS[0]), max_epochs, default, runs, _profiles(kind, chance, sizes))


def _sizes(kind: WorkloadKind, chance: random.Random) -> list[int]:
    many = chance.randint(*kind.sizes)
    if kind.powers_of_two:
        first = chance.randint(2, 5)
        return [2 ** (first + place) for place in range(many)]
    drawn: set[int] = set()
    while len(drawn) < many:
        drawn.add(round(2 ** chance.uniform(3, 12)))
    return sorted(drawn)


def _epochs(kind: WorkloadKind, chance: random.Random, octaves: list[float]) -> list[float]:
    """Log Epochs of each size, shifted so that the lowest is 0."""
    middle, where = chance.uniform(octaves[0], octaves[-1]), chance.uniform(octaves[0], octaves[-1])
    bend, slope, hump = chance.uniform(*kind.bend), chance.gauss(0, kind.slope), chance.uniform(*kind.hump)
    curve, walk = [], 0.0
    for before, x in zip([octaves[0], *octaves], octaves, strict=False):
        walk += chance.gauss(0, kind.rough * math.sqrt(x - before))
        off = x - middle
        curve.append(bend / 2 * off * off + slope * off + hump * math.exp(-((x - where) ** 2) / 0.8) + walk)
    return [y - min(curve) for y in curve]


def _dead(kind: WorkloadKind, chance: random.Random, sizes: list[int]) -> set[int]:
    many = round(chance.uniform(*kind.never) * (len(sizes) + 1))
    return set(sizes[:many] if chance.random() < 0.5 else sizes[len(sizes) - many :])


def _profiles(kind: WorkloadKind, chance: random.Random, sizes: list[int]) -> dict[int, PowerProfile]:
    """Up to some batch size, epochs get shorter and draw more power. Beyond it, they do not get shorter."""
    knee = chance.uniform(math.log2(sizes[0]), math.log2(sizes[-1]))
    saving, beyond, long = chance.uniform(*kind.saving), chance.choice([0.0, 0.0, 0.03, 0.1]), chance.uniform(50, 2000)
    profiles = {}
    for size in sizes:
        off = math.log2(size) - knee
        full = long * (1 + 2 ** (-saving * off)) * (1 + beyond * max(0.0, off)) * chance.lognormvariate(0, 0.02)
        draws = 90 + 150 / (1 + 2 ** (-0.7 * off))
        slices = []
        for watts in WATTS:
            seconds = full * max(1.0, (draws / watts) ** 0.45)
            slices.append(LimitSlice(watts, 1, seconds, seconds * min(watts, draws)))
        profiles[size] = PowerProfile.of(slices)
    return profiles
