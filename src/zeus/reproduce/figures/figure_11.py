"""Figure 11 (§6.7): how η moves the choice along DeepSpeech2's Pareto front."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zeus.ledger.pareto import ParetoPoint, front
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import points
from zeus.reproduce.panel import HALF, Cell, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study
from zeus.simulate.results import LAST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_11"
TITLE = "The Pareto front of DeepSpeech2, and how η moves along it (V100)"
WORKLOAD = "DeepSpeech2"
LINES = (0.3, 0.5, 0.7, 1.0)  # η for which a line of equal cost is drawn
ETAS = tuple(round(0.1 * step, 1) for step in range(11))


def cases(study: Study) -> list[Case]:
    return [Case(WORKLOAD, eta=eta) for eta in ETAS]


def compute(study: Study) -> Result:
    """The Pareto front, and for each η the best configuration and what Zeus converged to."""
    workload = study.main[WORKLOAD]
    every = points(workload)
    best = front(every)
    lines: list[tuple[Cell, ...]] = [("front", None, *one.cells) for one in best]
    off = 0.0
    for eta in ETAS:
        model = workload.cost_model(eta)
        least = min(every, key=lambda p, model=model: (model.cost(p.joules, p.seconds), p.seconds))  # type: ignore[misc]
        lines.append(("optimum", eta, *least.cells))
        past = study.past(Case(WORKLOAD, eta=eta))
        seconds, joules = float(past.seconds[:, -LAST:].mean()), float(past.joules[:, -LAST:].mean())
        lines.append(("zeus", eta, None, None, seconds, joules))
        off = max(off, _above(best, seconds, joules))
    columns = ("kind", "eta", "batch_size", "limit_watts", "tta_seconds", "eta_joules")
    lines += _equal_cost(lines, workload.max_watts)
    panel = Panel(NAME, "DeepSpeech2: optimum and Zeus for η from 0 to 1", columns, rows(lines), HALF)
    fronts = {one.cells for one in best}
    on_front = all(row[2:] in fronts for row in panel.where(kind="optimum").rows)
    return Result((panel,), (Number(f"{NAME}.on_front", "yes" if on_front else "no"), Number(f"{NAME}.off", 100 * off)))


def _equal_cost(lines: list[tuple[Any, ...]], max_watts: float) -> list[tuple[Cell, ...]]:
    """The two ends of the lines of equal cost (Equation 2) through the optimum, for some η."""
    ends = [0.95 * min(line[4] for line in lines), 1.05 * max(line[4] for line in lines)]
    return [
        ("equal cost", eta, None, None, end, joules - (1 - eta) / eta * max_watts * (end - seconds))
        for kind, eta, _, _, seconds, joules in lines
        if kind == "optimum" and eta in LINES
        for end in ends
    ]


def _above(best: list[ParetoPoint], seconds: float, joules: float) -> float:
    """The share by which both would have to shrink to reach the front. 0 means on the front."""
    return max(0.0, 1 - min(max(one.seconds / seconds, one.joules / joules) for one in best))


def draw(axes: Axes, panel: Panel) -> None:
    """A line of equal cost touches the front at the optimum for its η."""
    shown = panel.only(row for row in panel.rows if row[0] != "equal cost")
    seconds, unit = drawing.seconds_scaled(shown.column("tta_seconds"))
    joules, prefix = drawing.scaled(shown.column("eta_joules"))

    def plot(some: Panel, look: str, **look_of: Any) -> None:
        times, energies = np.array(some.column("tta_seconds")), np.array(some.column("eta_joules"))
        axes.plot(times / seconds, energies / joules, look, **look_of)

    best = panel.where(kind="optimum")
    plot(panel.where(kind="front"), "-o", color=style.GREEN, label="Pareto front", markersize=4)
    plot(best, "D", color=style.RED, label="optimum for each η", markersize=6)
    plot(panel.where(kind="zeus"), "x", color=style.BLUE, label="Zeus, last five recurrences", markersize=6)
    for eta in LINES:
        plot(panel.where(kind="equal cost", eta=eta), ":", color=style.GREY, linewidth=1)
    named: dict[tuple[float, float], list[float]] = {}
    for eta, time, energy in zip(*(best.column(name) for name in ("eta", "tta_seconds", "eta_joules")), strict=True):
        named.setdefault((time, energy), []).append(eta)
    for (time, energy), etas in named.items():
        text = f"η = {etas[0]:g}" + (f" to {etas[-1]:g}" if len(etas) > 1 else "")
        axes.annotate(text, (time / seconds, energy / joules), (-7, -12), textcoords="offset points", fontsize=8,
                      ha="right")  # fmt: skip
    axes.set_xlim(drawing.around(np.array(shown.column("tta_seconds")) / seconds, 0.2))
    axes.set_ylim(drawing.around(np.array(shown.column("eta_joules")) / joules, 0.15))
    axes.set_xlabel(f"Time to accuracy ({unit})")
    axes.set_ylabel(f"Energy to accuracy ({prefix}J)")
    axes.legend(loc="upper right")
