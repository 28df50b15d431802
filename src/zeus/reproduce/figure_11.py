"""Figure 11 (§6.7): how η moves the choice along DeepSpeech2's Pareto front."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from zeus.reproduce import drawing, style
from zeus.reproduce.panel import Cell, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study
from zeus.reproduce.tables import LAST, Point, front, points

NAME = "figure_11"
TITLE = "The Pareto front of DeepSpeech2, and how η navigates it (V100)"
WORKLOAD = "DeepSpeech2"
ETAS = tuple(round(0.1 * step, 1) for step in range(11))


def cases(study: Study) -> list[Case]:
    """A sweep of η."""
    return [Case(WORKLOAD, eta=eta) for eta in ETAS]


def compute(study: Study) -> Result:
    """The front, the best configuration for each η, and where Zeus converged to with it."""
    workload = study.main[WORKLOAD]
    every = points(workload)
    best = front(every)
    lines: list[tuple[Cell, ...]] = [("front", None, *one) for one in best]
    off = 0.0
    for eta in ETAS:
        model = workload.cost_model(eta)
        least = min(every, key=lambda p, model=model: (model.cost(p.joules, p.seconds), p.seconds))  # type: ignore[misc]
        lines.append(("optimum", eta, *least))
        past = study.past(Case(WORKLOAD, eta=eta))
        seconds, joules = float(past.seconds[:, -LAST:].mean()), float(past.joules[:, -LAST:].mean())
        lines.append(("zeus", eta, None, None, seconds, joules))
        off = max(off, _above(best, seconds, joules))
    columns = ("kind", "eta", "batch_size", "limit_watts", "tta_seconds", "eta_joules")
    panel = Panel(NAME, "DeepSpeech2: optimum and Zeus for η from 0 to 1", columns, rows(lines), (6.0, 3.8))
    on_front = all(Point(*row[2:]) in best for row in panel.where(kind="optimum").rows)  # type: ignore[arg-type]
    return Result((panel,), (Number(f"{NAME}.on_front", "yes" if on_front else "no"), Number(f"{NAME}.off", 100 * off)))


def _above(best: list[Point], seconds: float, joules: float) -> float:
    """How much both would have to shrink to reach the front: 0 on it."""
    return max(0.0, 1 - min(max(one.seconds / seconds, one.joules / joules) for one in best))


def draw(axes: Axes, panel: Panel) -> None:
    """Lines of equal cost touch the front at the optimum of their η."""
    kinds = {kind: panel.where(kind=kind) for kind in ("front", "optimum", "zeus")}
    seconds, unit = drawing.seconds_scaled(panel.column("tta_seconds"))
    joules, prefix = drawing.scaled(panel.column("eta_joules"))

    def plot(kind: str, look: str, colour: str, label: str, size: float) -> None:
        some = kinds[kind]
        times, energies = np.array(some.column("tta_seconds")), np.array(some.column("eta_joules"))
        axes.plot(times / seconds, energies / joules, look, color=colour, label=label, markersize=size)

    plot("front", "-o", style.GREEN, "Pareto front", 4)
    plot("optimum", "D", style.RED, "optimum for an η", 6)
    plot("zeus", "x", style.BLUE, "Zeus, last five recurrences", 6)
    ends = np.array([0.95 * min(panel.column("tta_seconds")), 1.05 * max(panel.column("tta_seconds"))])
    top = max(250.0, *kinds["front"].column("limit_watts"))
    for eta, time, energy in zip(
        *(kinds["optimum"].column(name) for name in ("eta", "tta_seconds", "eta_joules")), strict=True
    ):
        if eta in (0.3, 0.5, 0.7, 1.0):
            line = energy - (1 - eta) / eta * top * (ends - time)  # where Equation 2 stays the same
            axes.plot(ends / seconds, line / joules, ":", color=style.GREY, linewidth=1)
    labels: dict[tuple[float, float], list[float]] = {}
    for eta, time, energy in zip(
        *(kinds["optimum"].column(name) for name in ("eta", "tta_seconds", "eta_joules")), strict=True
    ):
        labels.setdefault((time, energy), []).append(eta)
    for (time, energy), etas in labels.items():
        text = f"η={etas[0]:g}" + (f"–{etas[-1]:g}" if len(etas) > 1 else "")
        axes.annotate(text, (time / seconds, energy / joules), (-6, -11), textcoords="offset points", fontsize=7,
                      ha="right")  # fmt: skip
    energies = [value / joules for value in panel.column("eta_joules")]
    axes.set_ylim(0.93 * min(energies), 1.05 * max(energies))
    axes.set_xlim(*(ends / seconds))
    axes.set_xlabel(f"Time to accuracy ({unit})")
    axes.set_ylabel(f"Energy to accuracy ({prefix}J)")
    axes.legend(loc="upper right")
