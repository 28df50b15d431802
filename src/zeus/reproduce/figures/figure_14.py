"""Figure 14 (§6.7): energy relative to Default over all workloads, by GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import converged, not_at_hand
from zeus.reproduce.panel import HALF, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_14"
TITLE = "Geometric mean of the energy relative to Default, by GPU"


def cases(study: Study) -> list[Case]:
    return [Case(name, gpu=gpu) for gpu in study.workloads for name in study.workloads[gpu]]


def compute(study: Study) -> Result:
    """The last five recurrences, with one geometric mean per seed."""
    lines = []
    for gpu, workloads in study.workloads.items():
        logs = np.log([converged(study, Case(name, gpu=gpu)).energy for name in workloads])
        means = np.exp(logs.mean(axis=0))
        card = style.GPUS.get(gpu, gpu)
        lines += [(card, "Default", 1.0, 1.0, 1.0), (card, "Zeus", means.mean(), means.min(), means.max())]
    title = "Energy, geometric mean of six workloads"
    panel = Panel(NAME, title, ("gpu", "method", "energy_ratio", "low", "high"), rows(lines), HALF)
    zeus = panel.where(method="Zeus").column("energy_ratio")
    share = 100 * sum(ratio < 1 for ratio in zeus) / len(zeus)
    note = ", ".join(f"{r[0]}: {r[2]:.3f}" for r in panel.where(method="Zeus").rows) + "."
    return Result((panel,), (Number(f"{NAME}.improved", share, note=f"{note} {not_at_hand(study)}".strip()),))


def draw(axes: Axes, panel: Panel) -> None:
    drawing.bars(axes, panel, "gpu", "method", "energy_ratio", style.METHODS, written="{:.3f}".format)
    drawing.room_for_values(axes, 0, max(panel.column("high")))
    axes.set_ylabel("Energy / Default")
    drawing.legend_below(axes)
