"""Kinds of pictures that several figures share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import FuncFormatter, NullLocator

from zeus.reproduce import style
from zeus.reproduce.panel import Panel


def bars(axes: Axes, panel: Panel, group: str, series: str, value: str, colours: Mapping[str, str]) -> None:
    """Groups of bars beside each other; with columns `low` and `high`, the range over seeds as a whisker."""
    groups, names = panel.values(group), panel.values(series)
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        some = panel.where(**{series: name})
        places = np.array([groups.index(one) for one in some.column(group)]) + (index - (len(names) - 1) / 2) * width
        heights = np.array(some.column(value), dtype=float)
        whiskers = None
        if "low" in panel.columns:
            low, high = (np.array(some.column(end), dtype=float) for end in ("low", "high"))
            whiskers = np.vstack([heights - low, high - heights])
        axes.bar(places, heights, width * 0.92, label=name, color=colours[name], yerr=whiskers, ecolor=style.BLACK,
                 error_kw={"elinewidth": 0.8, "capsize": 1.5})  # fmt: skip
    axes.set_xticks(range(len(groups)), groups, rotation=20, ha="right", rotation_mode="anchor")
    axes.grid(axis="x", visible=False)


def legend_below(axes: Axes) -> None:
    """A legend in one line under the picture, where it covers no data."""
    axes.figure.legend(loc="outside lower center", ncol=len(axes.get_legend_handles_labels()[0]))


def legend_right(axes: Axes) -> None:
    """A legend beside the picture."""
    axes.figure.legend(loc="outside right center")


def batch_axis(axes: Any, sizes: list[int]) -> None:
    """Batch sizes on a log axis, each with its own number where there is room."""
    axes.set_xscale("log", base=2)
    shown = sizes if len(sizes) <= 9 else [size for size in sizes if size & (size - 1) == 0]
    axes.set_xticks(shown, [str(size) for size in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    if len(shown) > 7 or max(shown) >= 4096:
        axes.tick_params(axis="x", labelrotation=45)
    axes.set_xlabel("Batch size")


def scaled(values: list[float]) -> tuple[float, str]:
    """A divisor and its prefix, so that an axis of joules has short numbers.

    >>> scaled([2.5e6, 1.2e7]), scaled([300.0])
    ((1000000.0, 'M'), (1.0, ''))
    """
    top = max(abs(value) for value in values)
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if top >= size:
            return size, prefix
    return 1.0, ""


def seconds_scaled(values: list[float]) -> tuple[float, str]:
    """Hours where seconds would be long."""
    return (3600.0, "h") if max(values) >= 2 * 3600 else (60.0, "min") if max(values) >= 600 else (1.0, "s")


def line_with_band(axes: Axes, panel: Panel, x: str, value: str, colour: str, label: str, divisor: float = 1.0) -> None:
    """A mean over seeds and its range as a band."""
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
    """Time and energy of every configuration, the Pareto front and the default."""
    seconds, unit = seconds_scaled(panel.column("tta_seconds"))
    joules, prefix = scaled(panel.column("eta_joules"))
    times, energies = np.array(panel.column("tta_seconds")) / seconds, np.array(panel.column("eta_joules")) / joules
    best = panel.where(on_front=True)
    axes.scatter(times, energies, s=14, color=style.SKY, label="configuration", zorder=2)
    front_times = np.array(best.column("tta_seconds")) / seconds
    front_energies = np.array(best.column("eta_joules")) / joules
    axes.plot(front_times, front_energies, "-o", color=style.GREEN, label="Pareto front", zorder=3)
    start = panel.where(default=True)
    axes.plot(
        np.array(start.column("tta_seconds")) / seconds,
        np.array(start.column("eta_joules")) / joules,
        "^",
        color=style.RED,
        markersize=8,
        linestyle="none",
        label="Default",
        zorder=4,
    )
    if annotate:
        for size, limit, time, energy in zip(
            best.column("batch_size"), best.column("limit_watts"), front_times, front_energies, strict=True
        ):
            axes.annotate(f"({size}, {limit:g} W)", (time, energy), (5, 5), textcoords="offset points", fontsize=7)
    if zoom:
        chosen = [*zip(front_times, front_energies, strict=True)]
        if not annotate:
            chosen += [(start.column("tta_seconds")[0] / seconds, start.column("eta_joules")[0] / joules)]
        for values, bound in (([t for t, _ in chosen], axes.set_xlim), ([e for _, e in chosen], axes.set_ylim)):
            margin = 0.12 * (max(values) - min(values)) or 0.1 * max(values)
            bound(min(values) - margin, max(values) + margin * (2.0 if annotate else 1.0))
    axes.set_xlabel(f"Time to accuracy ({unit})")
    axes.set_ylabel(f"Energy to accuracy ({prefix}J)")


def search_path(axes: Axes, panel: Panel) -> None:
    """Expected regret of each configuration as the ground, and the path over it from light to dark."""
    ground, path = panel.where(kind="configuration"), panel.where(kind="try")
    sizes, limits = sorted(set(ground.column("batch_size"))), sorted(set(ground.column("limit_watts")))
    heat = np.full((len(limits), len(sizes)), np.nan)
    for size, limit, regret in zip(
        ground.column("batch_size"), ground.column("limit_watts"), ground.column("regret"), strict=True
    ):
        heat[limits.index(limit), sizes.index(size)] = np.nan if regret is None else max(regret, 0.01)
    axes.grid(visible=False)
    axes.set_facecolor("white")
    top = float(np.nanmax(heat))
    picture = axes.imshow(
        heat, origin="lower", aspect="auto", cmap="Greys_r", norm=LogNorm(0.003, max(1.0, top)), interpolation="nearest"
    )
    for column in range(len(sizes)):
        if np.isnan(heat[:, column]).any():
            axes.text(column, (len(limits) - 1) / 2, "misses the target", rotation=90, ha="center", va="center",
                      fontsize=6.5, color=style.GREY)  # fmt: skip
    across = np.array([sizes.index(size) for size in path.column("batch_size")], dtype=float)
    up = np.array([limits.index(limit) for limit in path.column("limit_watts")], dtype=float)
    order = np.arange(len(across))
    axes.plot(across, up, color=style.ORANGE, linewidth=0.7, alpha=0.6, zorder=2)
    dots = axes.scatter(across, up, c=order, cmap="YlOrRd", s=26, edgecolor="white", linewidth=0.5, zorder=3,
                        vmin=-0.25 * len(order))  # fmt: skip
    axes.plot(across[-1:], up[-1:], "*", color=style.BLUE, markersize=13, markeredgecolor="white", zorder=4)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes], rotation=45 if len(sizes) > 7 else 0)
    axes.set_yticks(range(len(limits)), [f"{limit:g}" for limit in limits])
    axes.set_xlabel("Batch size")
    axes.set_ylabel("Power limit (W)")
    figure = axes.figure
    bar = figure.colorbar(picture, ax=axes, pad=0.02, label="Regret / least cost (dark: good)")
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    figure.colorbar(dots, ax=axes, pad=0.02, label="Try (dark: late; star: last)")
