"""Pictures of time and energy: every configuration, the Pareto front, and labels that do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from zeus.reproduce import style
from zeus.reproduce.drawing import around, scaled, seconds_scaled
from zeus.reproduce.panel import Panel
from zeus.reproduce.study import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL: Final = 0.05  # share of the axes; a front smaller than that is also shown magnified
POINTS: Final = 8  # size of a label
# Where a label may stand: offset in points, and which of its ends is at the offset.
SIDES: Final = (
    ((7, 4), "left"), ((-7, -11), "right"), ((7, -11), "left"), ((-7, 4), "right"), ((0, 12), "center"),
    ((0, -19), "center"), ((16, 14), "left"), ((-16, -21), "right"), ((16, -21), "left"), ((-16, 14), "right"),
)  # fmt: skip


def draw_front(axes: Axes, panel: Panel, *, zoom: bool, annotate: bool = False) -> None:
    """Time and energy of every configuration, the Pareto front and Default. Rows must be sorted by time.

    With `zoom` the axes show the front and Default; with `annotate` the points of the front have labels.
    """
    best, start = panel.where(on_front=True), panel.where(default=True)
    kept = best.rows + (() if annotate else start.rows) if zoom else panel.rows
    inside = panel.only(kept)  # the rows that must be in view
    seconds, unit = seconds_scaled(inside.column("tta_seconds"))
    joules, prefix = scaled(inside.column("eta_joules"))

    def places(some: Panel) -> tuple[Floats, Floats]:
        return np.array(some.column("tta_seconds")) / seconds, np.array(some.column("eta_joules")) / joules

    axes.plot(*places(panel), "o", color=style.SKY, markersize=4, label="configuration", zorder=2)
    axes.plot(*places(best), "-o", color=style.GREEN, label="Pareto front", zorder=3)
    if not annotate:
        axes.plot(*places(start), "^", color=style.RED, markersize=8, linestyle="none", label="Default", zorder=4)
    if zoom:
        times, energies = places(inside)
        axes.set(xlim=around(times, 0.22 if annotate else 0.15), ylim=around(energies, 0.15))
        if (
            not annotate
            and max(np.ptp(side) / np.ptp(all_of) for side, all_of in zip(places(best), (times, energies), strict=True))
            < SMALL
        ):
            _magnify(axes, places(panel), places(best))
    axes.set(xlabel=f"Time to accuracy ({unit})", ylabel=f"Energy to accuracy ({prefix}J)")
    if annotate:
        names = zip(best.column("batch_size"), best.column("limit_watts"), strict=True)
        _label(axes, [f"({size}, {limit:g} W)" for size, limit in names], *places(best), places(panel))


def _magnify(axes: Axes, every: tuple[Floats, Floats], best: tuple[Floats, Floats]) -> None:
    """The front once more, in a corner of its own."""
    inset = axes.inset_axes((0.62, 0.12, 0.35, 0.36))
    inset.plot(*every, "o", color=style.SKY, markersize=4)
    inset.plot(*best, "-o", color=style.GREEN)
    inset.set_xlim(around(best[0], 0.6))
    inset.set_ylim(around(best[1], 0.6))
    inset.tick_params(labelsize=8)
    inset.set_title("the front, magnified", fontsize=8, fontweight="normal")
    axes.indicate_inset_zoom(inset, edgecolor=style.GREY)


class LabelBox(NamedTuple):
    """A rectangle, in points."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: LabelBox) -> float:
        """The area that both cover.

        >>> LabelBox(0, 0, 2, 2).overlap(LabelBox(1, 1, 5, 5)), LabelBox(0, 0, 1, 1).overlap(LabelBox(1, 0, 2, 1))
        (1, 0)
        """
        across = min(self.right, other.right) - max(self.left, other.left)
        up = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0, across) * max(0, up)


def _label(axes: Axes, names: Sequence[str], times: Floats, energies: Floats, every: tuple[Floats, Floats]) -> None:
    """Label each point where its label covers least of the front, of all other points, and of labels before it."""
    from matplotlib.patheffects import withStroke

    whole = cast("Figure", axes.figure)
    whole.draw_without_rendering()  # so that places in points are known
    to_points = 72 / whole.get_dpi()
    spots = axes.transData.transform(np.column_stack([times, energies])) * to_points
    around_points = [_square(x, y, 12) for x, y in spots]  # a label there would seem to be that one's
    taken = [_square(x, y, 2) for ends in pairwise(spots) for x, y in np.linspace(*ends, 15)]  # the line
    taken += [_square(x, y, 3) for x, y in axes.transData.transform(np.column_stack(every)) * to_points]
    for own, (name, (x, y), time, energy) in enumerate(zip(names, spots, times, energies, strict=True)):
        others = taken + around_points[:own] + around_points[own + 1 :]
        boxes = [_box(name, x, y, *side) for side in SIDES]
        best = min(range(len(SIDES)), key=[sum(box.overlap(other) for other in others) for box in boxes].__getitem__)
        taken.append(boxes[best])
        offset, side = SIDES[best]
        far = abs(offset[1]) > 11
        axes.annotate(
            name,
            (time, energy),
            offset,
            textcoords="offset points",
            fontsize=POINTS,
            ha=side,
            path_effects=[withStroke(linewidth=2, foreground="white")],
            arrowprops={"arrowstyle": "-", "color": style.GREY, "linewidth": 0.6} if far else None,
            zorder=5,
        )


def _square(x: float, y: float, half: float) -> LabelBox:
    return LabelBox(x - half, y - half, x + half, y + half)


def _box(name: str, x: float, y: float, offset: tuple[float, float], side: str) -> LabelBox:
    """The place of a label, of about 0.6 times its letters' size per letter."""
    width = 0.6 * POINTS * len(name)
    left = x + offset[0] - {"left": 0.0, "center": width / 2, "right": width}[side]
    return LabelBox(left, y + offset[1] - 1, left + width, y + offset[1] + POINTS + 1)
