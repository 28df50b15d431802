"""Figure 23 (Appendix G): Figure 6 for every GPU that has a trace."""

from __future__ import annotations

from zeus.reproduce.derived import converged
from zeus.reproduce.figures import figure_06
from zeus.reproduce.panel import Number, Result
from zeus.reproduce.study import Case, Study

NAME = "figure_23"
TITLE = "Energy and time of the last five recurrences, by GPU"
draw = figure_06.draw


def cases(study: Study) -> list[Case]:
    policies = figure_06.POLICIES.values()
    return [Case(name, policy, gpu) for gpu in study.workloads for name in study.workloads[gpu] for policy in policies]


def compute(study: Study) -> Result:
    panels = tuple(panel for gpu in study.workloads for panel in figure_06.panels_of(study, gpu, f"{NAME}_{gpu}_"))
    means = [
        float(converged(study, Case(name, gpu=gpu)).energy.mean())
        for gpu, workloads in study.workloads.items()
        for name in workloads
    ]
    return Result(panels, (Number(f"{NAME}.improved", 100 * sum(mean < 1 for mean in means) / len(means)),))
