"""Figure 2 (§2.3): energy and time of DeepSpeech2, and its Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zeus.device.virtual import presets
from zeus.ledger.pareto import front
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import default_point, points
from zeus.reproduce.panel import HALF, THIRD, Number, Panel, Result, rows
from zeus.reproduce.pareto_picture import draw_front
from zeus.reproduce.study import MAIN, Study
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_02"
TITLE = "Energy and time of DeepSpeech2 in every configuration (V100)"
COLUMNS = ("batch_size", "limit_watts", "tta_seconds", "eta_joules", "average_watts", "on_front", "default")


def panel_of(workload: Workload, name: str, title: str, size: tuple[float, float] = THIRD) -> Panel:
    every, default = sorted(points(workload), key=lambda p: p.seconds), default_point(workload)
    best = set(front(every))
    lines = [(*one.cells, one.joules / one.seconds, one in best, one == default) for one in every]
    return Panel(name, title, COLUMNS, rows(lines), size)


def compute(study: Study) -> Result:
    workload = study.main["DeepSpeech2"]
    whole = panel_of(workload, f"{NAME}a", "DeepSpeech2: every configuration (V100)", HALF)
    near = panel_of(workload, f"{NAME}b", "DeepSpeech2: the Pareto front (batch size, power limit)", HALF)
    every = points(workload)
    least, fastest = min(every, key=lambda p: p.joules), min(every, key=lambda p: p.seconds)
    watts = whole.column("average_watts")
    numbers = (
        Number(f"{NAME}.energy_batch", least.batch_size),
        Number(f"{NAME}.energy_limit", least.limit_watts),
        Number(f"{NAME}.time_batch", fastest.batch_size),
        Number(f"{NAME}.time_limit", fastest.limit_watts),
        Number(f"{NAME}.heavy_load", max(watts)),
        Number(f"{NAME}.light_load", min(watts)),
        _idle(study),
        Number(f"{NAME}.default_beaten", "no" if whole.where(default=True, on_front=True).rows else "yes"),
    )
    return Result((whole, near), numbers)


def _idle(study: Study) -> Number:
    """An upper bound of the idle power: a card that trains draws at least as much as an idle one."""
    watts = {name: min(s.watts for p in w.profiles.values() for s in p.slices) for name, w in study.main.items()}
    least = min(watts, key=lambda name: watts[name])
    fitted = presets.card(MAIN).idle_watts
    note = f"{least} trains at {watts[least]:.1f} W on average. The fitted virtual V100 idles at {fitted:.1f} W."
    return Number(f"{NAME}.idle", watts[least], note=note)


def draw(axes: Axes, panel: Panel) -> None:
    """Panel a: all configurations and two lines of constant average power. Panel b: the Pareto front."""
    near = panel.name.endswith("b")
    draw_front(axes, panel, zoom=near, annotate=near)
    if not near:
        seconds, _ = drawing.seconds_scaled(panel.column("tta_seconds"))
        joules, _ = drawing.scaled(panel.column("eta_joules"))
        ends = np.array([0.0, max(panel.column("tta_seconds"))])
        for watts, look in ((max(panel.column("average_watts")), "--"), (min(panel.column("average_watts")), ":")):
            label = f"{watts:.0f} W on average"
            axes.plot(ends / seconds, ends * watts / joules, look, color=style.GREY, label=label, zorder=1)
        axes.set_ylim(0, 1.05 * max(panel.column("eta_joules")) / joules)
        axes.set_xlim(left=0)
    axes.legend(loc="upper right" if near else "upper left")
