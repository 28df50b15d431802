"""Figure 19 (Appendix D): Figure 7 for every workload."""

from __future__ import annotations

from collections.abc import Mapping

from zeus.reproduce.figures import figure_07
from zeus.reproduce.panel import Number, Result
from zeus.reproduce.study import Case, Floats, Study

NAME = "figure_19"
TITLE = "Cumulative regret for all workloads (V100)"
draw = figure_07.draw


def cases(study: Study) -> list[Case]:
    return [Case(name, policy) for name in study.main for policy in figure_07.POLICIES.values()]


def compute(study: Study) -> Result:
    panels = tuple(
        figure_07.panel_of(study, name, f"{NAME}{letter}") for letter, name in zip("abcdef", study.main, strict=True)
    )
    totals = {
        (name, policy): figure_07.cumulative(study, Case(name, policy))[:, -1]
        for name in study.main
        for policy in figure_07.POLICIES.values()
    }
    charged, free = ({name: _over(totals, name, grid) for name in study.main} for grid in ("grid", "grid-free"))
    worst = max(free, key=lambda name: free[name])
    by_seed = totals[worst, "grid-free"] / totals[worst, "paper"]
    numbers = (
        Number(
            f"{NAME}.below_grid",
            sum(min(charged[n], free[n]) > 1 for n in study.main),
            note=_ratios_note(charged, free),
        ),
        Number(
            f"{NAME}.worst_ratio",
            free[worst],
            float(by_seed.min()),
            float(by_seed.max()),
            f"The worst case is {worst}.",
        ),
    )
    return Result(panels, numbers)


def _over(totals: Mapping[tuple[str, str], Floats], name: str, grid: str) -> float:
    return float(totals[name, grid].mean() / totals[name, "paper"].mean())


def _ratios_note(charged: Mapping[str, float], free: Mapping[str, float]) -> str:
    each = ", ".join(f"{name} {free[name]:.1f} / {charged[name]:.1f}" for name in charged)
    return f"Regret of Grid Search / regret of Zeus, with failures free / charged: {each}."
