"""Figure 5 (§4.4): energy of DeepSpeech2 by batch size, which has a single minimum."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from zeus.reproduce import drawing, style
from zeus.reproduce.panel import Number, Panel, Result, rows
from zeus.reproduce.study import Study
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_05"
TITLE = "Energy of DeepSpeech2 by batch size (V100)"
ZOOMED = "The energy axis does not start at 0, so that the valley can be seen."


def panel_of(workload: Workload, name: str) -> Panel:
    """ETA at the highest limit: mean and range over the traced runs that reach the target."""
    lines = []
    for size in workload.sizes:
        reached = [n for n in workload.runs[size] if n is not None and n <= workload.max_epochs]
        if reached:
            joules = workload.profiles[size].slices[0].joules
            ends = (sum(reached) / len(reached), min(reached), max(reached))
            lines.append((size, *(joules * n for n in ends), len(reached), len(workload.runs[size])))
    columns = ("batch_size", "eta_joules", "low", "high", "runs_that_reached", "runs")
    return Panel(name, f"{workload.name}: energy by batch size at {workload.max_watts:g} W", columns, rows(lines))


def wrong_turns(curve: Sequence[tuple[float, float, float]]) -> int:
    """Count the steps between neighbours (mean, low, high) that rise before the least mean or fall after it.

    A step counts only if the ranges over runs do not overlap. A curve with a single valley has no such step.

    >>> wrong_turns([(5, 5, 5), (3, 3, 3), (1, 1, 1), (2, 2, 2)])
    0
    >>> wrong_turns([(5, 4, 6), (7, 6.5, 8), (1, 1, 1)]), wrong_turns([(5, 4, 6), (7, 5.5, 8), (1, 1, 1)])
    (1, 0)
    """
    means = [mean for mean, _, _ in curve]
    least = means.index(min(means))
    steps = list(pairwise(curve))
    rises = sum(after[1] > before[2] for before, after in steps[:least])
    return rises + sum(after[2] < before[1] for before, after in steps[least:])


def curve(panel: Panel) -> list[tuple[float, float, float]]:
    return list(zip(*(panel.column(name) for name in ("eta_joules", "low", "high")), strict=True))


def compute(study: Study) -> Result:
    panel = panel_of(study.main["DeepSpeech2"], NAME)
    return Result((panel,), (Number(f"{NAME}.wrong_turns", wrong_turns(curve(panel))),), ZOOMED)


def draw(axes: Axes, panel: Panel) -> None:
    joules, prefix = drawing.scaled(panel.column("high"))
    drawing.line_with_band(axes, panel, "batch_size", "eta_joules", style.BLUE, "mean; band: range over runs", joules)
    energies = [value / joules for value in panel.column("eta_joules")]
    axes.plot(panel.column("batch_size"), energies, "o", color=style.BLUE)
    drawing.mark_least(axes, panel.column("batch_size"), energies)
    low, high = min(panel.column("low")) / joules, max(panel.column("high")) / joules
    if high > 3 * low:  # else the valley would be flat beside its steep side
        axes.set_yscale("log")
        axes.set_ylim(low / 1.2, high * 1.2)
        drawing.plain_ticks(axes.yaxis, drawing.ROUND)
    drawing.batch_axis(axes, panel.column("batch_size"))
    axes.set_ylabel(f"Energy to accuracy ({prefix}J)")
    axes.legend(loc="best")
