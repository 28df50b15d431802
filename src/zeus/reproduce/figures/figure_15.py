"""Figure 15 (Appendix A): Figure 1 for every GPU that has a trace."""

from __future__ import annotations

from zeus.reproduce import style
from zeus.reproduce.derived import not_at_hand
from zeus.reproduce.figures import figure_01
from zeus.reproduce.panel import Number, Result
from zeus.reproduce.study import Study

NAME = "figure_15"
TITLE = "Energy that the best batch size, power limit or both would save, by GPU"
draw = figure_01.draw


def compute(study: Study) -> Result:
    panels = tuple(
        figure_01.panel_of(
            workloads, f"{NAME}_{gpu}", f"Energy to accuracy relative to Default, {style.GPUS.get(gpu, gpu)}"
        )
        for gpu, workloads in study.workloads.items()
    )
    saved = [1 - ratio for panel in panels for ratio in panel.where(knobs="Both").column("energy_ratio")]
    p100 = Number(f"{NAME}.p100", "shown" if "p100" in study.workloads else None, note=not_at_hand(study))
    remark = f"For every GPU and workload, batch size and power limit together save at least {min(saved):.0%}."
    return Result(panels, (p100,), remark)
