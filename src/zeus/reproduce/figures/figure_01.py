"""Figure 1 (§2.2): energy saved by the best batch size, the best power limit, and both (V100)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import default_point, points
from zeus.reproduce.panel import HALF, Number, Panel, Result, rows
from zeus.reproduce.study import Study
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_01"
TITLE = "Energy that the best batch size, power limit or both would save (V100)"
KNOBS = {
    "Default": style.GREY,
    "Batch size opt.": style.SKY,
    "Power limit opt.": style.ORANGE,
    "Both": style.GREEN,
}


def usage(workload: Workload) -> dict[str, float]:
    """Least energy relative to Default, by the knobs that may change."""
    every, default = points(workload), default_point(workload)
    chosen = {
        "Default": [default],
        "Batch size opt.": [one for one in every if one.limit_watts == default.limit_watts],
        "Power limit opt.": [one for one in every if one.batch_size == default.batch_size],
        "Both": every,
    }
    return {knob: min(one.joules for one in some) / default.joules for knob, some in chosen.items()}


def panel_of(workloads: Mapping[str, Workload], name: str, title: str) -> Panel:
    lines = [(one, knob, used) for one, w in workloads.items() for knob, used in usage(w).items()]
    return Panel(name, title, ("workload", "knobs", "energy_ratio"), rows(lines), HALF)


def compute(study: Study) -> Result:
    panel = panel_of(study.main, NAME, "Energy to accuracy relative to Default, V100")
    numbers = []
    for short, knob in (("batch", "Batch size opt."), ("limit", "Power limit opt."), ("joint", "Both")):
        saved = [100 * (1 - ratio) for ratio in panel.where(knobs=knob).column("energy_ratio")]
        numbers += [Number(f"{NAME}.{short}_low", min(saved)), Number(f"{NAME}.{short}_high", max(saved))]
    return Result((panel,), tuple(numbers))


def draw(axes: Axes, panel: Panel) -> None:
    drawing.bars(axes, panel, "workload", "knobs", "energy_ratio", KNOBS, written=drawing.digits)
    axes.set_ylabel("Energy / Default")
    drawing.room_for_values(axes, 0, 1)
    drawing.legend_below(axes)
