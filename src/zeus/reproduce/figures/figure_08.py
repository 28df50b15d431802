"""Figure 8 (§6.2): search paths of Zeus and Grid Search for DeepSpeech2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus.reproduce.panel import HALF, Cell, Number, Panel, Result, rows
from zeus.reproduce.search_picture import draw_search
from zeus.reproduce.study import Case, Study
from zeus.simulate import regret

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_08"
TITLE = "Search paths of Zeus and Grid Search for DeepSpeech2 (V100)"
METHODS = {"paper": "Zeus", "grid": "Grid Search"}


def panel_of(study: Study, case: Case, name: str) -> Panel:
    """The expected regret of each configuration, and all trials of the first seed."""
    workload = study.workload(case)
    least, model = regret.optimum(workload, case.eta), workload.cost_model(case.eta)
    lines: list[tuple[Cell, ...]] = []
    for size, limit_watts in workload.pairs:
        cost = model.of(workload.expected(size, limit_watts))
        over = cost / least - 1 if workload.always_converges(size) else None
        lines.append(("configuration", None, size, limit_watts, over))
    for number, recurrence in enumerate(study.tries(case), start=1):
        lines += [("try", number, one.decision.batch_size, one.limit_watts, None) for one in recurrence.tries]
    trials = sum(line[0] == "try" for line in lines)
    title = f"{case.workload}: the {trials} trials of {METHODS[case.policy]} (blue square: the last)"
    return Panel(name, title, ("kind", "recurrence", "batch_size", "limit_watts", "regret"), rows(lines), HALF)


def cases(study: Study) -> list[Case]:
    return [Case(name, policy) for name in study.main for policy in METHODS]


def compute(study: Study) -> Result:
    panels = tuple(panel_of(study, Case("DeepSpeech2", p), f"{NAME}{'ab'[i]}") for i, p in enumerate(METHODS))
    zeus, grid = (sum(on_best(study, Case(name, policy)) for name in study.main) for policy in METHODS)
    every = len(study.main) * study.seeds
    note = f"Runs (workload and seed) that end on the best pair: Zeus {zeus} of {every}, Grid Search {grid} of {every}."
    return Result(panels, (Number(f"{NAME}.grid_misses", "yes" if grid < min(zeus, every) else "no", note=note),))


def on_best(study: Study, case: Case) -> int:
    """In how many seeds the last recurrence used the pair with the least expected cost."""
    best = regret.best_pair(study.workload(case), case.eta)
    return sum(choice == best for choice in study.past(case).last)


def draw(axes: Axes, panel: Panel) -> None:
    draw_search(axes, panel)
