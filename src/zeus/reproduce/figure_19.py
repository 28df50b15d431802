"""Figure 19 (Appendix D): cumulative regret of Zeus and Grid Search for every workload."""

from __future__ import annotations

from zeus.reproduce import figure_07
from zeus.reproduce.panel import Number, Result
from zeus.reproduce.study import Case, Study

NAME = "figure_19"
TITLE = "Cumulative regret for all workloads (V100)"
draw = figure_07.draw


def cases(study: Study) -> list[Case]:
    """Both methods on every workload."""
    return [Case(name, policy) for name in study.main for policy in figure_07.POLICIES.values()]


def compute(study: Study) -> Result:
    """Over all seeds."""
    panels = tuple(
        figure_07.panel_of(study, name, f"{NAME}{letter}") for letter, name in zip("abcdef", study.main, strict=True)
    )
    ratios = {}
    for name in study.main:
        zeus, grid = (figure_07.cumulative(study, Case(name, p))[:, -1].mean() for p in ("paper", "grid"))
        ratios[name] = float(grid / zeus)
    note = "Grid Search's regret over Zeus's: " + ", ".join(f"{n} {r:.1f}x" for n, r in ratios.items()) + "."
    numbers = (
        Number(f"{NAME}.below_grid", sum(ratio > 1 for ratio in ratios.values()), note=note),
        Number(f"{NAME}.worst_ratio", max(ratios.values())),
    )
    return Result(panels, numbers)
