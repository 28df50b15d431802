"""Figure 9 (§6.3): a cluster of recurring jobs under Default, Grid Search and Zeus.

The jobs are those of `--groups`. Without it they are a composite of two other clusters, and every row says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from zeus.errors import InputError
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import unknown
from zeus.reproduce.figures.figure_07 import FREE
from zeus.reproduce.panel import HALF, Number, Panel, Result, rows
from zeus.reproduce.study import Study
from zeus.simulate.cluster.composite import composite
from zeus.simulate.cluster.groups import TASK_JOBS, GroupRow, simulate
from zeus.simulate.cluster.match import match
from zeus.simulate.workers import spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_09"
TITLE = "Energy and time of a cluster's recurring jobs, relative to Default (V100)"
POLICIES = {"default": "Default", "grid": "Grid Search", "grid-free": FREE, "paper": "Zeus"}
COMPOSITE = (
    "Ours is a composite of two other clusters, so only the order of magnitude can be compared. A few groups of "
    "hundreds of jobs hold most of its work, so little of it is exploration."
)
HIGHEST = 10.0  # higher bars are cut off
LUCK = (
    "Ratios are to what Default is expected to use for the same work. Default's own bar differs from 1 by the luck of "
    "its runs, most where there are few jobs."
)
NUMBERS = ("jobs", "energy_low", "energy_high", "time_low", "time_high", "below_grid")


def compute(study: Study) -> Result:
    """One seed is enough, as there are thousands of jobs."""
    try:
        trace = study.groups or composite(study.data)
        clusters = match(trace, study.main)
    except InputError as wrong:
        return unknown(NAME, NUMBERS, str(wrong))
    processes = study.processes if trace.jobs > 4 * TASK_JOBS else 1  # for less, starting processes takes longer
    found = simulate(clusters, list(POLICIES), workers=partial(spread, processes=processes))
    panels = tuple(
        Panel(
            f"{NAME}{letter}",
            f"{what.capitalize()} of all jobs of a workload, including exploration{_composite(study)}",
            ("workload", "method", "ratio", "jobs", "cumulative_regret"),
            rows(
                (r.workload, POLICIES[r.policy], getattr(r, f"{what}_ratio"), r.jobs, r.cumulative_regret)
                for r in found
            ),
            HALF,
        )
        for letter, what in (("a", "energy"), ("b", "time"))
    )
    jobs = sum(cluster.jobs for cluster in clusters)
    groups = sum(len(cluster.groups) for cluster in clusters)
    remark = f"{jobs} jobs of {groups} groups; {trace.source}. {LUCK}"
    if study.groups is None:
        remark += " These are not the jobs of the paper."
        return Result(panels, _numbers(found, None, COMPOSITE), remark)
    return Result(panels, _numbers(found, jobs, remark), remark)


def _composite(study: Study) -> str:
    return " (composite cluster)" if study.groups is None else ""


def _numbers(found: list[GroupRow], jobs: int | None, note: str) -> tuple[Number, ...]:
    regret = {(row.policy, row.workload): row.cumulative_regret or 0.0 for row in found}
    zeus = [row for row in found if row.policy == "paper"]
    energy, time = ([100 * (1 - ratio) for ratio in some] for some in zip(*map(_ratios, zeus), strict=True))
    below = sum(
        regret["paper", row.workload] < min(regret[grid, row.workload] for grid in ("grid", "grid-free"))
        for row in zeus
    )
    values = (jobs, min(energy), max(energy), -min(time), max(time), below)
    why = "The paper's trace was not given (--groups). The figure shows a composite cluster."
    notes = (why if jobs is None else note, *[note] * (len(NUMBERS) - 1))
    return tuple(
        Number(f"{NAME}.{name}", value, note=said) for name, value, said in zip(NUMBERS, values, notes, strict=True)
    )


def _ratios(row: GroupRow) -> tuple[float, float]:
    return row.energy_ratio, row.time_ratio


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
