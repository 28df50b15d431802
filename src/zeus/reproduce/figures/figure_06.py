"""Figure 6 (§6.2): what Zeus and Grid Search converged to, relative to Default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import converged, over_seeds
from zeus.reproduce.panel import HALF, Cell, Panel, Result, rows
from zeus.reproduce.study import MAIN, Case, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_06"
TITLE = "Energy and time of the last five recurrences, relative to Default (V100)"
POLICIES = {"Grid Search": "grid", "Zeus": "paper"}


def cases(study: Study) -> list[Case]:
    return [Case(name, policy) for name in study.main for policy in POLICIES.values()]


def panels_of(study: Study, gpu: str, name: str) -> tuple[Panel, Panel]:
    lines: dict[str, list[tuple[Cell, ...]]] = {"energy": [], "time": []}
    for workload in study.workloads[gpu]:
        for some in lines.values():
            some.append((workload, "Default", 1.0, 1.0, 1.0))
        for method, policy in POLICIES.items():
            for what, values in converged(study, Case(workload, policy, gpu))._asdict().items():
                lines[what].append((workload, method, values.mean(), values.min(), values.max()))
    columns, card = ("workload", "method", "ratio", "low", "high"), style.GPUS.get(gpu, gpu)
    return (
        Panel(f"{name}a", f"Energy of the last five recurrences, {card}", columns, rows(lines["energy"]), HALF),
        Panel(f"{name}b", f"Time of the last five recurrences, {card}", columns, rows(lines["time"]), HALF),
    )


def compute(study: Study) -> Result:
    """A number is the mean over seeds of the most extreme workload in each seed."""
    ratios = [converged(study, Case(name)) for name in study.main]
    energy = 100 * (1 - np.array([one.energy for one in ratios]))
    time = 100 * (1 - np.array([one.time for one in ratios]))
    numbers = (
        over_seeds(f"{NAME}.energy_low", energy.min(axis=0)),
        over_seeds(f"{NAME}.energy_high", energy.max(axis=0)),
        over_seeds(f"{NAME}.time_high", time.max(axis=0)),
        over_seeds(f"{NAME}.time_low", -time.min(axis=0)),
    )
    return Result(panels_of(study, MAIN, NAME), numbers)


def draw(axes: Axes, panel: Panel) -> None:
    """Three bars per workload. Whiskers show the range over seeds."""
    drawing.bars(axes, panel, "workload", "method", "ratio", style.METHODS, written=drawing.digits)
    drawing.room_for_values(axes, 0, max(panel.column("high")))
    axes.set_ylabel(("Energy" if panel.name.endswith("a") else "Time") + " / Default")
    drawing.legend_below(axes)
