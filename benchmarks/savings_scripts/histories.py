"""The trials of a drawn job: a simple policy chooses batch sizes, and runs use what the world says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from savings_scripts.worlds import ETA, STEPS, Card, Pair, World
from zeus.job import Ending, Kind, Phase

BETA = 2.0  # an exploring trial stops when its cost would pass this many times the best
TRIES = 8  # of a recurrence
MOST_SCATTER = 0.15  # relative deviation of one step


@dataclass(frozen=True, slots=True)
class Piece:
    """Some units of one epoch at one limit, with what they would have used at the highest."""

    kind: Kind
    limit: float
    count: int
    use: Pair
    at_top: Pair


@dataclass(slots=True)
class Run:
    """One trial: its pieces by epoch."""

    recurrence: int
    size: int
    card: Card
    phase: Phase
    bound: float | None = None  # on its cost
    ending: Ending = Ending.CONVERGED
    epochs: list[list[Piece]] = field(default_factory=list)
    unfinished: Pair = field(default_factory=lambda: np.zeros(2))  # used by the epoch in which it crashed
    next_epoch_cost: float | None = None
    known: bool = True  # its energy

    @property
    def used(self) -> Pair:
        return total([piece.use for epoch in self.epochs for piece in epoch]) + self.unfinished

    @property
    def at_top(self) -> Pair:
        """The same run, entirely at the highest limit."""
        return total([piece.at_top for epoch in self.epochs for piece in epoch])


def total(some: list[Pair]) -> Pair:
    return np.sum(some, axis=0) if some else np.zeros(2)


def cost(use: Pair, card: Card) -> float:
    """Equation 2."""
    return float(ETA * use[0] + (1 - ETA) * card.top * use[1])


@dataclass(slots=True)
class Limits:
    """Which power limits a trial runs at: those that are still to be tried with its size, and then the best."""

    world: World
    left: dict[tuple[str, int], list[float]] = field(default_factory=dict)  # watched
    walked: set[tuple[str, int, bool]] = field(default_factory=set)  # by steps

    def best(self, size: int, card: Card) -> float:
        return min(card.limits, key=lambda limit: cost(self.world.training(size, card, limit), card))

    def of_epoch(self, size: int, card: Card, cold: bool, phase: Phase) -> list[float]:
        """The limits of an epoch in order. All but the last are for a few steps only."""
        if not self.world.tuned or phase is Phase.BASELINE:
            return [card.top]
        best = self.best(size, card)
        if self.world.way == STEPS:
            new, again = (card.name, size, True) not in self.walked, (card.name, size, False) not in self.walked
            if (new and cold) or (again and not cold and self.world.walks):
                self.walked.add((card.name, size, cold))
                return [*card.limits, best]
            return [best]
        # A cold epoch cannot be compared with others. The next one repeats its limit.
        last = card.limits.index(best) + 1 if self.world.walks else 0
        left = self.left.setdefault((card.name, size), list(card.limits[: last + 1]))
        return [best if not left else left[0] if cold else left.pop(0)]


def train(world: World, rng: np.random.Generator, run: Run, limits: Limits) -> Run:
    """Carry out a trial that was decided."""
    size, card, recurrence = run.size, run.card, run.recurrence
    needed = int(world.epochs(size, rng.normal()))
    one, other = rng.normal(size=2)
    normal = np.array([one, world.correlation * one + math.sqrt(1 - world.correlation**2) * other])
    spread = np.sqrt(np.log1p(np.square(world.noise)))
    noise = np.exp(spread * normal - spread**2 / 2) * world.day(recurrence)
    ends, crashed, lost = min(needed, world.max_epochs), rng.random() < world.crashes, rng.random() < world.losses
    run.ending = Ending.CONVERGED if needed <= world.max_epochs else Ending.NOT_CONVERGED
    if crashed and size != world.default:
        ends, run.ending = int(rng.integers(ends)), Ending.CRASHED
    elif lost and ends > 1:
        ends, run.ending = int(rng.integers(1, ends)), Ending.LOST
    run.known = bool(rng.random() >= world.unknown)
    for number in range(1, ends + 1):
        watts = limits.of_epoch(size, card, number == 1, run.phase)
        run.epochs.append(list(epoch(world, rng, run, watts, noise, number == 1)))
        following = cost(total([piece.use for piece in run.epochs[-1]]), card)
        if number == 1:
            following -= cost(world.warming(size, card, watts[-1]) * noise, card)
        if run.bound is not None and number < ends and cost(run.used, card) + following > run.bound:
            run.ending, run.next_epoch_cost = Ending.STOPPED, following
            break
    if run.ending is Ending.CRASHED:
        run.unfinished = rng.uniform(0.05, 0.95) * world.training(size, card, card.top) * noise
    return run


def epoch(
    world: World, rng: np.random.Generator, run: Run, watts: list[float], noise: Pair, cold: bool
) -> Iterator[Piece]:
    """The pieces of one epoch, which runs at the last limit after a few steps at each of the others."""
    size, card = run.size, run.card
    steps, level = world.steps(size, run.recurrence), world.levels[run.recurrence - 1]
    few = max(1, steps // (4 * len(watts)))
    counts = [few] * (len(watts) - 1) + [steps - few * (len(watts) - 1)]

    def scatter(share: float) -> Pair:
        spread = min(MOST_SCATTER, world.within / math.sqrt(share))
        common, own = rng.normal(), rng.normal(size=2)
        return np.exp(spread * (0.8 * common + 0.6 * own) - spread**2 / 2)

    for place, (limit, count) in enumerate(zip(watts, counts, strict=True)):
        share, chance = count / steps, scatter(count / steps) * noise
        warms = cold * (float(place == 0) if world.at_once else share)

        def use(at: float, share: float = share, chance: Pair = chance, warms: float = warms) -> Pair:
            work = share * level * world.training(size, card, at) + warms * world.warming(size, card, at)
            return work * chance

        yield Piece(Kind.STEP, limit, count, use(limit), use(card.top))
    if world.evaluation:
        chance = scatter(1.0) * noise * world.evaluation * level
        at, top = (world.training(size, card, limit) * chance for limit in (watts[-1], card.top))
        yield Piece(Kind.EVALUATION, watts[-1], 1, at, top)


@dataclass(slots=True)
class History:
    """A job's trials in order, and what is true of them."""

    world: World
    runs: list[Run] = field(default_factory=list)

    def recurrence(self, number: int) -> list[Run]:
        return [run for run in self.runs if run.recurrence == number]

    def true_default(self, number: int, *, on_that_day: bool = True) -> Pair:
        """The default of a recurrence that converged: its own run at the highest limit, if that was the default."""
        last = self.recurrence(number)[-1]
        if last.size == self.world.default and last.ending is Ending.CONVERGED:
            return last.at_top
        return self.world.expected_default(number, on_that_day=on_that_day)

    def used(self, number: int) -> Pair:
        return total([run.used for run in self.recurrence(number)])

    @property
    def unbridged(self) -> bool:
        """Whether no size ran before and after a jump on the same GPUs, so that nothing shows how far it went."""
        world = self.world
        ran: tuple[set[tuple[str, int]], ...] = (set(), set())
        for run in self.runs:
            if run.epochs and run.known:
                ran[run.recurrence >= world.jump_at].add((run.card.name, run.size))
        return bool(world.jump_at) and not ran[0] & ran[1] and world.way != STEPS  # steps count the samples


class Policy:
    """Runs the default first, then explores the neighbours of the best size, and stays with the best."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._costs: dict[tuple[str, int], list[float]] = {}
        self._out: set[int] = set()  # sizes that crashed
        self._tried: set[tuple[str, int]] = set()

    def best(self, card: Card) -> tuple[int, float] | None:
        """The cheapest size on this card and its mean cost."""
        here = {size: sum(some) / len(some) for (name, size), some in self._costs.items() if name == card.name}
        allowed = {size: mean for size, mean in here.items() if size not in self._out}
        return min(allowed.items(), key=lambda item: item[1]) if allowed else None

    def first(self, recurrence: int) -> Run:
        """The first trial of a recurrence."""
        world, card = self._world, self._world.card(recurrence)
        if world.baseline_every and recurrence % world.baseline_every == 0:
            return Run(recurrence, world.default, card, Phase.BASELINE)
        best = self.best(card)
        if best is None:
            return self.again(recurrence)
        place = world.sizes.index(best[0])
        for size in world.sizes[max(0, place - 1) : place + 2]:
            if (card.name, size) not in self._tried and size not in self._out:
                return Run(recurrence, size, card, Phase.EXPLORING, BETA * best[1])
        return self.again(recurrence)

    def again(self, recurrence: int) -> Run:
        """A trial of the best size without a bound."""
        world, card = self._world, self._world.card(recurrence)
        elsewhere = None if world.default_first else self.best(world.cards[0])
        found = self.best(card) or elsewhere
        return Run(recurrence, found[0] if found else world.default, card, Phase.SAMPLING)

    def saw(self, run: Run) -> None:
        if run.ending is Ending.LOST:
            return
        self._tried.add((run.card.name, run.size))
        if run.ending is Ending.CONVERGED:
            self._costs.setdefault((run.card.name, run.size), []).append(cost(run.used, run.card))
        if run.ending is Ending.CRASHED:
            self._out.add(run.size)


def draw_history(world: World, rng: np.random.Generator) -> History:
    """All recurrences of a job."""
    history, policy, limits = History(world), Policy(world), Limits(world)
    for recurrence in range(1, world.recurrences + 1):
        for attempt in range(TRIES):
            run = policy.first(recurrence) if attempt == 0 else policy.again(recurrence)
            history.runs.append(train(world, rng, run, limits))
            policy.saw(run)
            if run.ending is Ending.CONVERGED:
                break
    return history
