"""Figure 12 (§6.7): cumulative energy by the early-stopping threshold β, relative to β = 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import geometric_mean
from zeus.reproduce.panel import HALF, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_12"
TITLE = "Cumulative energy of Zeus by the early-stopping threshold β (V100)"
BETAS = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
SWEPT = 1.5  # the lowest β in the paper
CHOSEN = 2.0


def cases(study: Study) -> list[Case]:
    return [Case(name, beta=beta) for name in study.main for beta in BETAS]


def compute(study: Study) -> Result:
    """Mean energy of all recurrences, relative to β = 2."""
    energy = {
        (name, beta): study.past(Case(name, beta=beta)).joules.sum(axis=1) for name in study.main for beta in BETAS
    }
    lines = [(n, beta, float(some.mean() / energy[n, CHOSEN].mean())) for (n, beta), some in energy.items()]
    means = {beta: geometric_mean(ratio for _, b, ratio in lines if b == beta) for beta in BETAS}
    table = rows([*lines, *(("Geometric mean", beta, mean) for beta, mean in means.items())])
    title = "Cumulative energy by β, relative to β = 2"
    panel = Panel(NAME, title, ("workload", "beta", "relative_energy"), table, HALF)
    best = min((beta for beta in BETAS if beta >= SWEPT), key=lambda beta: means[beta])
    first, second, *_ = sorted((b for b in BETAS if b >= SWEPT and 2 * b % 1 == 0), key=lambda b: means[b])
    apart = 100 * (means[second] / means[first] - 1)
    note = f"On a grid of halves (1.5, 2, 2.5 ...), ours is {first:g}; {second:g} takes {apart:.2f} % more. "
    note += "Geometric means: " + ", ".join(f"β={beta:g}: {mean:.4f}" for beta, mean in means.items()) + "."
    if best != CHOSEN and study.seeds > 1:  # is the difference larger than the scatter over seeds?
        by_seed = np.exp(np.mean([np.log(energy[n, best] / energy[n, CHOSEN]) for n in study.main], axis=0))
        error = by_seed.std(ddof=1) / np.sqrt(study.seeds)
        note += f" For the same seed, β={best:g} uses {by_seed.mean():.4f} of the energy of β=2 (error {error:.4f})."
    return Result((panel,), (Number(f"{NAME}.best", best, note=note),))


def draw(axes: Axes, panel: Panel) -> None:
    """One line per workload. The geometric mean is black."""
    for name in panel.values("workload"):
        some, (colour, marker) = panel.where(workload=name), style.WORKLOADS[name]
        width = 2.4 if name == "Geometric mean" else 1.2
        places = some.column("beta")
        axes.plot(places, some.column("relative_energy"), f"-{marker}", color=colour, label=name, linewidth=width)
    axes.set_xlabel("Early-stopping threshold β")
    axes.set_ylabel("Cumulative energy / energy at β = 2")
    drawing.legend_right(axes)
