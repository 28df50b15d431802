"""Figure 20 (Appendix E): the search path of Zeus for every workload."""

from __future__ import annotations

from zeus.reproduce.figures import figure_08
from zeus.reproduce.panel import Result
from zeus.reproduce.study import Case, Study

NAME = "figure_20"
TITLE = "Search paths of Zeus for all workloads (V100)"
draw = figure_08.draw


def compute(study: Study) -> Result:
    named = zip("abcdef", study.main, strict=True)
    return Result(tuple(figure_08.panel_of(study, Case(name, "paper"), f"{NAME}{letter}") for letter, name in named))
