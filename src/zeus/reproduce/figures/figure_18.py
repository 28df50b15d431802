"""Figure 18 (Appendix C): energy by power limit for every workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import point
from zeus.reproduce.figures import figure_05
from zeus.reproduce.panel import Number, Panel, Result, rows
from zeus.reproduce.study import Study
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_18"
TITLE = "Energy by power limit for all workloads (V100)"


def panel_of(workload: Workload, name: str) -> Panel:
    every = [point(workload, workload.default, one.limit_watts) for one in workload.profiles[workload.default].slices]
    lines = [(one.limit_watts, one.joules, one.seconds) for one in reversed(every)]
    title = f"{workload.name}: energy by power limit at batch size {workload.default}"
    return Panel(name, title, ("limit_watts", "eta_joules", "tta_seconds"), rows(lines))


def compute(study: Study) -> Result:
    panels = tuple(panel_of(w, f"{NAME}{letter}") for letter, w in zip("abcdef", study.main.values(), strict=True))
    below = 0
    for panel in panels:
        limits, energies = panel.column("limit_watts"), panel.column("eta_joules")
        below += limits[energies.index(min(energies))] < max(limits)
    return Result(panels, (Number(f"{NAME}.below_highest", below),), figure_05.ZOOMED)


def draw(axes: Axes, panel: Panel) -> None:
    joules, prefix = drawing.scaled(panel.column("eta_joules"))
    energies = [value / joules for value in panel.column("eta_joules")]
    axes.plot(panel.column("limit_watts"), energies, "-o", color=style.BLUE)
    drawing.mark_least(axes, panel.column("limit_watts"), energies)
    axes.set_ylim(drawing.around(np.array(energies), 0.15))
    axes.set_xlabel("Power limit (W)")
    axes.set_ylabel(f"Energy to accuracy ({prefix}J)")
    axes.legend(loc="best")
