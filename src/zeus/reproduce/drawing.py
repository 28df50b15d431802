"""Drawing functions that several figures share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zeus.reproduce import style
from zeus.reproduce.panel import Panel
from zeus.reproduce.study import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
ROUND: Final = tuple(digit * 10.0**power for power in range(-3, 7) for digit in (1, 2, 5))  # numbers for a log axis


def bars(
    axes: Axes,
    panel: Panel,
    group: str,
    series: str,
    value: str,
    colours: Mapping[str, str],
    *,
    base: float = 0.0,
    highest: float = np.inf,
    written: Callable[[float], str] | None = None,
) -> None:
    """Grouped bars from `base`. Columns `low` and `high`, if present, are whiskers over seeds.

    A bar beyond `highest` is cut off there, with a break in it. A bar from a base above 0 has a thick end, so that one
    of no height is seen. `written` formats the value that is written at the end of each bar.
    """
    groups, names = panel.values(group), panel.values(series)
    width = 0.84 / len(names)
    for index, name in enumerate(names):
        some = panel.where(**{series: name})
        places = np.array([groups.index(one) for one in some.column(group)]) + (index - (len(names) - 1) / 2) * width
        values = np.array(some.column(value), dtype=float)
        heights = values.clip(max=highest)
        whiskers, ends = None, heights
        if "low" in panel.columns:
            low, high = (np.array(some.column(end), dtype=float) for end in ("low", "high"))
            if (high > low).any():
                whiskers, ends = np.vstack([heights - low, high - heights]).clip(min=0), high
        axes.bar(places, heights - base, width * 0.92, bottom=base, label=name, color=colours[name], yerr=whiskers,
                 ecolor=style.BLACK, error_kw={"elinewidth": 0.8, "capsize": 1.5})  # fmt: skip
        if base:
            axes.hlines(
                heights, places - 0.46 * width, places + 0.46 * width, color=colours[name], linewidth=2.5, zorder=3
            )
        for place in places[values > highest]:
            _break(axes, place, highest)
        if written:
            for place, one, end in zip(places, values, ends, strict=True):
                _write(axes, written(one), place, end, down=end < 0.97 * base)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="x", visible=False)


def _break(axes: Axes, place: float, end: float) -> None:
    """Two white strokes below the end of a bar: it goes on."""
    from matplotlib.transforms import ScaledTranslation

    for points in (-7, -11):
        lower = axes.transData + ScaledTranslation(0, points / 72, axes.figure.dpi_scale_trans)
        axes.plot(place, end, marker=[(-2.0, -1.0), (2.0, 1.0)], markersize=24, color="white", markeredgewidth=2,
                  zorder=4, transform=lower)  # fmt: skip


def _write(axes: Axes, text: str, place: float, end: float, *, down: bool) -> None:
    """The value of a bar, upright at its end, so that it is no wider than the bar."""
    axes.annotate(text, (place, end), (0, -3 if down else 3), textcoords="offset points", fontsize=8, rotation=90,
                  ha="center", va="top" if down else "bottom")  # fmt: skip


def digits(value: float) -> str:
    """A ratio in as few digits as tell it from others.

    >>> digits(0.9512), digits(14.02)
    ('0.95', '14')
    """
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def room_for_values(axes: Axes, low: float, high: float) -> None:
    """Set the limits for bars between these ends, with room for the values that are written there."""
    if axes.get_yscale() == "log":
        span = high / low
        axes.set_ylim(low / (span**0.22 if low < 0.97 else 1.02), high * span**0.22)
    else:
        axes.set_ylim(low, 1.2 * high)


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


def mark_least(axes: Axes, places: Sequence[float], values: Sequence[float]) -> None:
    """A star at the least value."""
    least = values.index(min(values))
    axes.plot(places[least], values[least], "*", color=style.RED, markersize=12, label="least", linestyle="none",
              zorder=4)  # fmt: skip


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


def around(values: Floats, margin: float) -> tuple[float, float]:
    """The limits of an axis for these values, with a margin given as a share of their span."""
    room = margin * float(np.ptp(values)) or margin * float(values.max())
    return float(values.min()) - room, float(values.max()) + room
