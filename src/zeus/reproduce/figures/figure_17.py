"""Figure 17 (Appendix C): energy by batch size for every workload."""

from __future__ import annotations

from zeus.reproduce.figures import figure_05
from zeus.reproduce.panel import Number, Result
from zeus.reproduce.study import Study

NAME = "figure_17"
TITLE = "Energy by batch size for all workloads (V100)"
draw = figure_05.draw


def compute(study: Study) -> Result:
    panels = tuple(
        figure_05.panel_of(workload, f"{NAME}{letter}")
        for letter, workload in zip("abcdef", study.main.values(), strict=True)
    )
    turns = {name: figure_05.wrong_turns(figure_05.curve(p)) for name, p in zip(study.main, panels, strict=True)}
    note = "Steps in the wrong direction: " + ", ".join(f"{name} {count}" for name, count in turns.items()) + "."
    return Result(
        panels, (Number(f"{NAME}.one_valley", sum(not count for count in turns.values()), note=note),), figure_05.ZOOMED
    )
