"""Figure 7 (§6.2): cumulative regret of Zeus and Grid Search on two workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zeus.reproduce import drawing, style
from zeus.reproduce.panel import Number, Panel, Result, rows
from zeus.reproduce.study import MAIN, Case, Floats, Study
from zeus.simulate import regret

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_07"
TITLE = "Cumulative regret of Zeus and Grid Search (V100)"
FREE = "Grid Search, failures free"
POLICIES = {"Grid Search": "grid", FREE: "grid-free", "Zeus": "paper"}
WORKLOADS = ("DeepSpeech2", "ResNet-50")


def cases(study: Study) -> list[Case]:
    return [Case(name, policy) for name in WORKLOADS for policy in POLICIES.values()]


def cumulative(study: Study, case: Case) -> Floats:
    """Equation 8 after each recurrence, with one row per seed."""
    least = regret.optimum(study.workload(case), case.eta)
    return np.cumsum(study.past(case).cost - least, axis=1)


def panel_of(study: Study, workload: str, name: str, gpu: str = MAIN) -> Panel:
    lines = []
    for method, policy in POLICIES.items():
        sums = cumulative(study, Case(workload, policy, gpu))
        for recurrence, column in enumerate(sums.T, start=1):
            lines.append((method, recurrence, column.mean(), column.min(), column.max()))
    columns = ("method", "recurrence", "cumulative_regret", "low", "high")
    return Panel(name, f"{workload}: cumulative regret", columns, rows(lines))


def compute(study: Study) -> Result:
    panels = tuple(panel_of(study, one, f"{NAME}{letter}") for letter, one in zip("ab", WORKLOADS, strict=True))
    charged, free = ({name: _behind(study, name, grid) for name in WORKLOADS} for grid in ("grid", "grid-free"))
    behind = ", ".join(f"{name} {', '.join(map(str, some)) or 'none'}" for name, some in free.items())
    note = f"If failed runs are free, Zeus is not below after these recurrences: {behind}."
    below = sum(not some for some in charged.values())
    return Result(panels, (Number(f"{NAME}.below_throughout", below, note=note),))


def _behind(study: Study, workload: str, grid: str) -> list[int]:
    """Recurrences after which the mean cumulative regret of Zeus is not below that of this Grid Search."""
    zeus, other = (cumulative(study, Case(workload, policy)).mean(axis=0) for policy in ("paper", grid))
    return [int(index) + 1 for index in np.flatnonzero(zeus >= other)]


def draw(axes: Axes, panel: Panel) -> None:
    """Lines with bands. The axis is logarithmic, as the methods differ by up to a factor of 1000.

    By luck, a seed can be below the expected least cost for a while. Around 0 the axis is linear, so that it shows.
    """
    divisor, prefix = drawing.scaled(panel.column("high"))
    for method in panel.values("method"):
        some = panel.where(method=method)
        colour = style.METHODS[method]
        drawing.line_with_band(axes, some, "recurrence", "cumulative_regret", colour, method, divisor)
        if method == FREE:  # dashed, as it often lies on top of Grid Search
            axes.lines[-1].set_linestyle("--")
    axes.set_xlabel("Recurrence")
    axes.set_ylabel(f"Cumulative regret ({prefix}J)")
    low, high = min(panel.column("low")) / divisor, max(panel.column("high")) / divisor
    powers = [10.0**power for power in range(-4, 5)]
    if low > 0:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.6)
    else:
        linear = float(10.0 ** np.ceil(np.log10(max(-low, high / 1e4))))
        axes.set_yscale("symlog", linthresh=linear, linscale=0.5)
        axes.set_ylim(1.2 * low, high * 1.6)
        powers = [-linear, 0.0, *(power for power in powers if power >= linear)]
    drawing.plain_ticks(axes.yaxis, powers)
    drawing.legend_below(axes)
