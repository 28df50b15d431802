"""Pictures of a search: a heat map of the regret of every configuration, and the trials on top."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from zeus.reproduce import style
from zeus.reproduce.panel import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_REGRET: Final = 0.01  # relative to the least cost; anything below is drawn as equally good
FEW_POINTS, MANY_POINTS = 5.0, 19.0  # diameter of the circle of one trial, and of all trials
EARLY_TO_LATE: Final = ("#FFE9A8", "#FD8D3C", "#B10026", "#4A0012")
Cell = tuple[int, int]  # column and line of a configuration


def draw_search(axes: Axes, panel: Panel) -> None:
    """One circle for each configuration that was tried: the larger, the more often. A number says how often.

    The square is around the last.
    """
    from matplotlib.colors import LinearSegmentedColormap

    ground, path = panel.where(kind="configuration"), panel.where(kind="try")
    sizes, limits = sorted(set(ground.column("batch_size"))), sorted(set(ground.column("limit_watts")))
    _heat(axes, ground, sizes, limits)
    visits: list[Cell] = [
        (sizes.index(size), limits.index(limit))
        for size, limit in zip(path.column("batch_size"), path.column("limit_watts"), strict=True)
    ]
    for (here, there), times in Counter(pairwise(visits)).items():
        if here != there:
            width = 0.5 + 2.0 * times / len(visits)
            axes.plot(*zip(here, there, strict=True), color=style.ORANGE, linewidth=width, alpha=0.7, zorder=2)
    counted, mean = Counter(visits), _mean_trial(visits)
    circles = axes.scatter(
        [column for column, _ in counted],
        [line for _, line in counted],
        s=[_diameter(times, len(visits)) ** 2 for times in counted.values()],
        c=[mean[cell] for cell in counted],
        cmap=LinearSegmentedColormap.from_list("late", EARLY_TO_LATE),
        vmin=1,
        vmax=len(visits),
        edgecolor=style.BLACK,
        linewidth=0.5,
        zorder=3,
    )
    for cell, times in counted.items():
        if times > 1:
            inside = _diameter(times, len(visits)) > 13
            light = inside and mean[cell] > 0.45 * len(visits)
            axes.annotate(str(times), cell, (0, 0) if inside else (5, 5), textcoords="offset points", fontsize=8,
                          ha="center" if inside else "left", va="center", zorder=5, fontweight="bold",
                          color="white" if light else style.BLACK,
                          path_effects=[] if inside else _outline())  # fmt: skip
    axes.plot(*visits[-1], "s", color="none", markersize=23, markeredgecolor=style.BLUE, markeredgewidth=2, zorder=4)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_yticks(range(len(limits)), [f"{limit:g}" for limit in limits])
    axes.set(xlabel="Batch size", ylabel="Power limit (W)")
    axes.figure.colorbar(circles, ax=axes, pad=0.02, label="Trial (mean of a circle's)")


def _heat(axes: Axes, ground: Panel, sizes: list[int], limits: list[float]) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter

    heat = np.full((len(limits), len(sizes)), np.nan)
    for size, limit, regret in zip(
        *(ground.column(name) for name in ("batch_size", "limit_watts", "regret")), strict=True
    ):
        heat[limits.index(limit), sizes.index(size)] = np.nan if regret is None else max(regret, LEAST_REGRET)
    axes.grid(visible=False)
    axes.set_facecolor("#F6E7DB")
    shades = LogNorm(LEAST_REGRET / 3, max(1.0, float(np.nanmax(heat))))
    picture = axes.imshow(heat, origin="lower", aspect="auto", cmap="Greys_r", norm=shades, interpolation="nearest")
    for column in range(len(sizes)):
        if np.isnan(heat[:, column]).any():
            axes.text(column, -0.4, "misses the target", rotation=90, ha="center", va="bottom", fontsize=8,
                      color=style.BLACK)  # fmt: skip
    bar = axes.figure.colorbar(picture, ax=axes, pad=0.02, label="Regret / least cost")
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _mean_trial(visits: list[Cell]) -> dict[Cell, float]:
    """The mean number of the trials of each configuration, counted from 1.

    >>> _mean_trial([(0, 0), (1, 0), (0, 0)])
    {(0, 0): 2.0, (1, 0): 2.0}
    """
    numbers: dict[Cell, list[int]] = {}
    for number, cell in enumerate(visits, start=1):
        numbers.setdefault(cell, []).append(number)
    return {cell: sum(some) / len(some) for cell, some in numbers.items()}


def _diameter(times: int, trials: int) -> float:
    """In points. The area grows with the number of trials."""
    return float(np.sqrt(FEW_POINTS**2 + (MANY_POINTS**2 - FEW_POINTS**2) * times / trials))


def _outline() -> list[object]:
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2, foreground="white")]
