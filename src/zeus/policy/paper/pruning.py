"""Algorithm 3, lines 1-9: explore the default, then smaller sizes, then larger ones. Keep those that converged.

    round 1:   b0 ──▶ next smaller ... until one fails ──▶ next larger ... until one fails
    round 2:   the same among those that converged, from the cheapest of them
    then:      Done

Until some size converges, a failure does not end its direction, because the sizes that converge may lie further on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace


class Walk(msgspec.Struct, frozen=True):
    """The state of the exploration.

    >>> walk = Walk.start((8, 16, 32), default=16, rounds=1)
    >>> walk.current
    16
    >>> walk.step(converged=True, cost=5.0).current
    8
    >>> walk.step(converged=True, cost=5.0).step(converged=False).current
    32
    """

    sizes: tuple[int, ...]  # B, ascending; shrinks at the end of each round
    default: int  # b0 of this round
    rounds_left: int
    ahead: tuple[int, ...]  # to be explored in this round, in order; the first is being explored
    converged: frozenset[int] = frozenset()  # in this round
    cheapest: Mapping[int, float] = {}  # lowest cost of each size that ever converged

    @classmethod
    def start(cls, sizes: tuple[int, ...], default: int, rounds: int) -> Walk:
        """The state before the first exploration. A single size needs no pruning."""
        walk = cls(sizes, default, rounds if len(sizes) > 1 else 0, ())
        return walk._round()

    @property
    def done(self) -> bool:
        """Whether all rounds are over."""
        return not self.ahead

    @property
    def current(self) -> int:
        """The size to explore now."""
        return self.ahead[0]

    def learn(self, size: int, cost: float) -> Walk:
        """The state after any run of this size converged at this cost."""
        if cost >= self.cheapest.get(size, math.inf):
            return self
        return replace(self, cheapest={**self.cheapest, size: cost})

    def step(self, *, converged: bool, cost: float | None = None) -> Walk:
        """The state after the current size was explored.

        A size that converged at unknown cost is kept, but does not become the new default.
        """
        size, ahead = self.current, self.ahead[1:]
        if converged:
            learnt = self.learn(size, math.inf if cost is None else cost)
            kept = {size: math.inf, **learnt.cheapest}
            return replace(self, ahead=ahead, converged=self.converged | {size}, cheapest=kept)._round_if_over()
        if self.cheapest and size != self.default:  # lines 4 and 5: this direction ends
            ahead = tuple(b for b in ahead if (b < self.default) != (size < self.default))
        return replace(self, ahead=ahead)._round_if_over()

    def without(self, size: int) -> Walk:
        """The state without this size. Its neighbours are still explored."""
        left = tuple(b for b in self.sizes if b != size)
        walk = replace(self, sizes=left, converged=self.converged - {size})
        return replace(walk, ahead=tuple(b for b in walk.ahead if b != size))._round_if_over() if walk.ahead else walk

    def restore(self, size: int) -> Walk:
        """The state with this size again. In an unfinished round it comes last."""
        if size in self.sizes:
            return self
        ahead = (*self.ahead, size) if self.ahead else ()
        return replace(self, sizes=tuple(sorted((*self.sizes, size))), ahead=ahead)

    def _round_if_over(self) -> Walk:
        if self.ahead or not self.sizes:
            return self
        if not self.cheapest:  # nothing has converged: start over, which does not count as a round
            return replace(self, ahead=_order(self.sizes, self.default))
        # Line 6. If none would remain, keep those that ever converged.
        left = tuple(b for b in self.sizes if b in self.converged) or tuple(b for b in self.sizes if b in self.cheapest)
        if not left:
            return replace(self, ahead=_order(self.sizes, self.default))
        default = min(left, key=lambda b: (self.cheapest.get(b, math.inf), b))  # line 7
        return replace(self, sizes=left, default=default, rounds_left=self.rounds_left - 1)._round()

    def _round(self) -> Walk:
        ahead = _order(self.sizes, self.default) if self.rounds_left > 0 else ()
        return replace(self, ahead=ahead, converged=frozenset())


def _order(sizes: tuple[int, ...], default: int) -> tuple[int, ...]:
    """Lines 3-5: the default, then smaller sizes downward, then larger sizes upward."""
    down = sorted((b for b in sizes if b < default), reverse=True)
    up = sorted(b for b in sizes if b > default)
    return (*((default,) if default in sizes else ()), *down, *up)
