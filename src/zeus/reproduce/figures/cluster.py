"""§6.3: a cluster of recurring jobs under Default, Grid Search and Zeus (Figure 9).

The jobs are those of `--groups`. Without it they are a composite of two other clusters, and every row says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from zeus.errors import InputError
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import unknown
from zeus.reproduce.figures.performance import FREE
from zeus.reproduce.panel import HALF, Figure, Number, Panel, Result, rows
from zeus.reproduce.study import Study
from zeus.simulate.cluster.composite import composite
from zeus.simulate.cluster.groups import TASK_JOBS, GroupRow, simulate
from zeus.simulate.cluster.match import match
from zeus.simulate.workers import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME: Final = "figure_09"
POLICIES: Final = {"default": "Default", "grid": "Grid Search", "grid-free": FREE, "paper": "Zeus"}
COMPOSITE: Final = (
    "Ours is a composite of two other clusters, so only the order of magnitude can be compared. A few groups of "
    "hundreds of jobs hold most of its work, so little of it is exploration."
)
HIGHEST: Final = 10.0  # higher bars are cut off
LUCK: Final = (
    "Ratios are to what Default is expected to use for the same work. Default's own bar differs from 1 by the luck of "
    "its runs, most where there are few jobs. A bar with a break in it is cut off."
)
NUMBERS: Final = ("jobs", "energy_low", "energy_high", "time_low", "time_high", "below_grid")


def compute(study: Study) -> Result:
    """One seed is enough, as there are thousands of jobs."""
    try:
        trace = study.groups or composite(study.data)
        clusters = match(trace, study.main)
    except InputError as wrong:
        return unknown(NAME, NUMBERS, str(wrong))
    processes = study.processes if trace.jobs > 4 * TASK_JOBS else 1  # for less, starting processes takes longer
    found = simulate(clusters, list(POLICIES), workers=partial(spread, processes=processes))
    own = " (composite cluster)" if study.groups is None else ""
    columns = ("workload", "method", "ratio", "jobs", "cumulative_regret")
    panels = tuple(
        Panel(
            f"{NAME}{letter}",
            f"{what.capitalize()} of all jobs of a workload, including exploration{own}",
            columns,
            rows((r.workload, POLICIES[r.policy], getattr(r, f"{what}_ratio"), r.jobs, r.cumulative_regret)
                 for r in found),
            HALF,
        )
        for letter, what in (("a", "energy"), ("b", "time"))
    )  # fmt: skip
    jobs = sum(cluster.jobs for cluster in clusters)
    groups = sum(len(cluster.groups) for cluster in clusters)
    remark = f"{jobs} jobs of {groups} groups; {trace.source}. {LUCK}"
    if study.groups is None:
        remark += " These are not the jobs of the paper."
        return Result(panels, numbers(found, None, COMPOSITE), remark)
    return Result(panels, numbers(found, jobs, remark), remark)


def numbers(found: list[GroupRow], jobs: int | None, note: str) -> tuple[Number, ...]:
    zeus = [row for row in found if row.policy == "paper"]
    energy = [100 * (1 - row.energy_ratio) for row in zeus]
    time = [100 * (1 - row.time_ratio) for row in zeus]
    below, why_below = _below_grid(found)
    why_jobs = "The paper's trace was not given (--groups). The figure shows a composite cluster."
    values = (jobs, min(energy), max(energy), -min(time), max(time), below)
    notes = (why_jobs if jobs is None else note, note, note, note, note, f"{why_below} {note}".strip())
    return tuple(
        Number(f"{NAME}.{name}", value, note=why) for name, value, why in zip(NUMBERS, values, notes, strict=True)
    )


def _below_grid(found: list[GroupRow]) -> tuple[int | None, str]:
    """On how many workloads Zeus regrets less than either Grid Search. None if a regret is not known, with the reason.

    A workload of which no batch size reaches the target in every run has no best choice, so no regret.
    """
    regret = {(row.policy, row.workload): row.cumulative_regret for row in found}
    if unknown_on := sorted({workload for (_, workload), value in regret.items() if value is None}):
        return (
            None,
            f"The regret on {', '.join(unknown_on)} is not known: no batch size reaches the target in every run.",
        )
    known = {key: value for key, value in regret.items() if value is not None}
    workloads = {row.workload for row in found}
    return sum(known["paper", one] < min(known["grid", one], known["grid-free", one]) for one in workloads), ""


def draw(axes: Axes, panel: Panel) -> None:
    """Four bars per workload, up or down from what Default is expected to use, on a logarithmic axis.

    A bar beyond HIGHEST is cut off, with its value written above. Else it would make all others look alike.
    """
    ratios = panel.column("ratio")
    axes.set_yscale("log")
    drawing.bars(axes, panel, "workload", "method", "ratio", style.METHODS, base=1.0, highest=HIGHEST,
                 written=drawing.digits)  # fmt: skip
    drawing.room_for_values(axes, min(ratios), min(HIGHEST, max(ratios)))
    drawing.plain_ticks(axes.yaxis, (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10))
    axes.axhline(1, color=style.BLACK, linewidth=0.8)
    jobs = dict(zip(panel.column("workload"), panel.column("jobs"), strict=True))
    axes.set_xticks(range(len(jobs)), [f"{name}\njobs: {count:,}" for name, count in jobs.items()])
    axes.set_ylabel(("Energy" if panel.name.endswith("a") else "Time") + " / what Default should use")
    drawing.legend_below(axes)


FIGURES: Final = (
    Figure(NAME, "Energy and time of a cluster's recurring jobs, relative to Default (V100)", compute, draw),
)
