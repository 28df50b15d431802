"""Figure 16 (Appendix B): the Pareto front of every workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus.reproduce.figures import figure_02
from zeus.reproduce.panel import Number, Panel, Result
from zeus.reproduce.pareto_picture import draw_front
from zeus.reproduce.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_16"
TITLE = "Energy and time of all workloads, near the Pareto front (V100)"


def compute(study: Study) -> Result:
    panels = tuple(
        figure_02.panel_of(workload, f"{NAME}{letter}", f"{name}: energy and time, with the Pareto front")
        for letter, (name, workload) in zip("abcdef", study.main.items(), strict=True)
    )
    beaten = sum(not panel.where(default=True, on_front=True).rows for panel in panels)
    return Result(panels, (Number(f"{NAME}.default_beaten", beaten),), "The axes do not start at 0.")


def draw(axes: Axes, panel: Panel) -> None:
    """Zoomed to the Pareto front, so the axes do not start at 0."""
    draw_front(axes, panel, zoom=True)
    axes.legend(loc="best")
