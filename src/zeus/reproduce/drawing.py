"""Drawing functions that several figures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from zeus.reproduce import style
from zeus.reproduce.panel import Panel
from zeus.reproduce.study import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_REGRET = 0.01  # relative to the least cost; anything below is drawn as equally good


def bars(axes: Axes, panel: Panel, group: str, series: str, value: str, colours: Mapping[str, str]) -> None:
    """Grouped bars. Columns `low` and `high`, if present, give the range over seeds as whiskers."""
    groups, names = panel.values(group), panel.values(series)
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        some = panel.where(**{series: name})
        places = np.array([groups.index(one) for one in some.column(group)]) + (index - (len(names) - 1) / 2) * width
        heights = np.array(some.column(value), dtype=float)
        whiskers = None
        if "low" in panel.columns:
            low, high = (np.array(some.column(end), dtype=float) for end in ("low", "high"))
            whiskers = np.vstack([heights - low, high - heights]).clip(min=0) if (high > low).any() else None
        axes.bar(places, heights, width * 0.92, label=name, color=colours[name], yerr=whiskers, ecolor=style.BLACK,
                 error_kw={"elinewidth": 0.8, "capsize": 1.5})  # fmt: skip
    slanted: dict[str, Any] = {"rotation": 20, "ha": "right", "rotation_mode": "anchor"} if len(groups) > 4 else {}
    axes.set_xticks(range(len(groups)), groups, **slanted)
    axes.grid(axis="x", visible=False)


def legend_below(axes: Axes) -> None:
    """A legend in one line below the picture, where it covers no data."""
    axes.figure.legend(loc="outside lower center", ncol=len(axes.get_legend_handles_labels()[0]))


def legend_right(axes: Axes) -> None:
    """A legend to the right of the picture, where it covers no data."""
    axes.figure.legend(loc="outside right center")


def batch_axis(axes: Any, sizes: list[int]) -> None:
    """A log axis of batch sizes. With many sizes, only powers of two are labelled."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log", base=2)
    shown = sizes if len(sizes) <= 9 else [size for size in sizes if size & (size - 1) == 0]
    axes.set_xticks(shown, [str(size) for size in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    if len(shown) > 7 or max(shown) >= 4096:
        axes.tick_params(axis="x", labelrotation=45)
    axes.set_xlabel("Batch size")


def plain_ticks(axis: Any, values: Sequence[float]) -> None:
    """Label a log axis with these numbers, as far as they are in view, instead of powers of ten."""
    from matplotlib.ticker import NullLocator

    low, high = axis.get_view_interval()
    shown = [value for value in values if low <= value <= high]
    axis.set_ticks(shown, [f"{value:g}" for value in shown])
    axis.set_minor_locator(NullLocator())


def scaled(values: list[float]) -> tuple[float, str]:
    """A divisor and its SI prefix, so that the numbers on an axis are short.

    >>> scaled([2.5e6, 1.2e7]), scaled([300.0])
    ((1000000.0, 'M'), (1.0, ''))
    """
    top = max(abs(value) for value in values)
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if top >= size:
            return size, prefix
    return 1.0, ""


def seconds_scaled(values: list[float]) -> tuple[float, str]:
    """A divisor and its unit of time, so that the numbers on an axis are short."""
    return (3600.0, "h") if max(values) >= 2 * 3600 else (60.0, "min") if max(values) >= 600 else (1.0, "s")


def line_with_band(axes: Axes, panel: Panel, x: str, value: str, colour: str, label: str, divisor: float = 1.0) -> None:
    """A line for the mean over seeds, with the range as a band."""
    places = panel.column(x)
    axes.plot(places, np.array(panel.column(value)) / divisor, color=colour, label=label)
    axes.fill_between(
        places,
        np.array(panel.column("low")) / divisor,
        np.array(panel.column("high")) / divisor,
        color=colour,
        alpha=0.2,
        linewidth=0,
    )


def front(axes: Axes, panel: Panel, zoom: bool, annotate: bool = False) -> None:
    """Time and energy of every configuration, the Pareto front and Default. Rows must be sorted by time."""
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
    else:
        _name_each(axes, best, *places(best))
    if zoom:
        times, energies = places(inside)
        axes.set_xlim(around(times, 0.22 if annotate else 0.15))
        axes.set_ylim(around(energies, 0.15))
    axes.set_xlabel(f"Time to accuracy ({unit})")
    axes.set_ylabel(f"Energy to accuracy ({prefix}J)")


def around(values: Floats, margin: float) -> tuple[float, float]:
    """The limits of an axis for these values, with a margin given as a share of their span."""
    room = margin * float(np.ptp(values)) or margin * float(values.max())
    return float(values.min()) - room, float(values.max()) + room


def _name_each(axes: Axes, best: Panel, times: Floats, energies: Floats) -> None:
    """Label each point, in turn right and left of the line, so that labels do not overlap."""
    from matplotlib.patheffects import withStroke

    for index, (size, limit) in enumerate(zip(best.column("batch_size"), best.column("limit_watts"), strict=True)):
        offset, side = ((6, 4), "left") if index % 2 == 0 else ((-6, -10), "right")
        axes.annotate(
            f"({size}, {limit:g} W)",
            (times[index], energies[index]),
            offset,
            textcoords="offset points",
            fontsize=7.5,
            ha=side,
            path_effects=[withStroke(linewidth=2, foreground="white")],
            zorder=5,
        )


def search_path(axes: Axes, panel: Panel) -> None:
    """A heat map of the expected regret, with the trials on top, from light (first) to dark (last)."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.ticker import FuncFormatter

    ground, path = panel.where(kind="configuration"), panel.where(kind="try")
    sizes, limits = sorted(set(ground.column("batch_size"))), sorted(set(ground.column("limit_watts")))
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
            axes.text(column, (len(limits) - 1) / 2, "misses the target", rotation=90, ha="center", va="center",
                      fontsize=7, color=style.BLACK)  # fmt: skip
    across, up = _apart(
        [sizes.index(size) for size in path.column("batch_size")],
        [limits.index(limit) for limit in path.column("limit_watts")],
    )
    axes.plot(across, up, color=style.ORANGE, linewidth=0.6, alpha=0.55, zorder=2)
    late = LinearSegmentedColormap.from_list("late", ["#FFE9A8", "#FD8D3C", "#B10026", "#4A0012"])
    dots = axes.scatter(
        across, up, c=np.arange(1, len(across) + 1), cmap=late, s=16, edgecolor=style.BLACK, linewidth=0.25, zorder=3
    )
    axes.plot(across[-1:], up[-1:], "*", color=style.SKY, markersize=13, markeredgecolor=style.BLACK, zorder=4)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes], rotation=45 if len(sizes) > 7 else 0)
    axes.set_yticks(range(len(limits)), [f"{limit:g}" for limit in limits])
    axes.set_xlabel("Batch size")
    axes.set_ylabel("Power limit (W)")
    bar = axes.figure.colorbar(picture, ax=axes, pad=0.02, label="Regret / least cost (dark: good)")
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.figure.colorbar(dots, ax=axes, pad=0.02, label="Trial (dark: late; star: last)")


def _apart(columns: list[int], lines: list[int]) -> tuple[Floats, Floats]:
    """Place trials of the same configuration on a spiral in its cell, so that none hides another."""
    visits: dict[tuple[int, int], int] = {}
    places = []
    for column, line in zip(columns, lines, strict=True):
        visit = visits[column, line] = visits.get((column, line), -1) + 1
        radius, angle = min(0.36, 0.055 * np.sqrt(visit)), 2.399963 * visit  # the golden angle spreads points evenly
        places.append((column + radius * np.cos(angle), line + radius * np.sin(angle)))
    across, up = np.array(places).T
    return across, up
