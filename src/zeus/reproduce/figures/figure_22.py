"""Figure 22 (Appendix F): how η weighs energy against time, for all workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import converged, geometric_mean
from zeus.reproduce.panel import HALF, Cell, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_22"
TITLE = "Improvement in energy and time over Default, by η (V100)"
ETAS = (0.0, 0.25, 0.5, 0.75, 1.0)
MEAN = "Geometric mean"


def cases(study: Study) -> list[Case]:
    return [Case(name, eta=eta) for name in study.main for eta in ETAS]


def compute(study: Study) -> Result:
    """Use of Default / use of Zeus in the last five recurrences, as means over seeds."""
    lines: dict[str, list[tuple[Cell, ...]]] = {"energy": [], "time": []}
    means: dict[str, list[float]] = {"energy": [], "time": []}
    for eta in ETAS:
        ratios = {name: converged(study, Case(name, eta=eta)) for name in study.main}
        for what in lines:
            factors = {name: 1 / float(np.mean(getattr(one, what))) for name, one in ratios.items()}
            factors[MEAN] = geometric_mean(factors.values())
            means[what].append(factors[MEAN])
            lines[what] += [(name, eta, factor) for name, factor in factors.items()]
    columns = ("workload", "eta", "improvement")
    panels = tuple(
        Panel(f"{NAME}{letter}", f"Improvement in {what} over Default, by η", columns, rows(lines[what]), HALF)
        for letter, what in (("a", "energy"), ("b", "time"))
    )
    better = {what: "up" if values[-1] > values[0] else "down" for what, values in means.items()}
    note = f"Geometric means for η = {', '.join(map(str, ETAS))}: "
    note += "; ".join(f"{what} " + ", ".join(f"{v:.2f}" for v in values) for what, values in means.items()) + "."
    numbers = (Number(f"{NAME}.energy", better["energy"], note=note), Number(f"{NAME}.time", better["time"]))
    return Result(panels, numbers)


def draw(axes: Axes, panel: Panel) -> None:
    for name in panel.values("workload"):
        some, (colour, marker) = panel.where(workload=name), style.WORKLOADS[name]
        width = 2.4 if name == MEAN else 1.2
        axes.plot(
            some.column("eta"), some.column("improvement"), f"-{marker}", color=colour, label=name, linewidth=width
        )
    axes.axhline(1, color=style.BLACK, linewidth=0.8)
    axes.set_xlabel("η (0: only time counts, 1: only energy)")
    axes.set_ylabel("Default / Zeus")
    drawing.legend_right(axes)
