"""§6.7, with Appendix F: how η, β, the parts of Zeus and the GPU change what it saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zeus.ledger.pareto import ParetoPoint, front
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import converged, geometric_mean, not_at_hand, points
from zeus.reproduce.panel import HALF, Cell, Figure, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study
from zeus.simulate.results import LAST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ON_FRONT: Final = "DeepSpeech2"
LINES: Final = (0.3, 0.5, 0.7, 1.0)  # η for which a line of equal cost is drawn
FINE_ETAS: Final = tuple(round(0.1 * step, 1) for step in range(11))
ETAS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
BETAS: Final = (1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
SWEPT: Final = 1.5  # the lowest β in the paper
CHOSEN: Final = 2.0
PARTS: Final = {"early stopping": "paper:no-early-stop", "pruning": "paper:no-pruning", "JIT profiling": "paper:no-jit"}
PART_COLOURS: Final = {"no early stopping": style.RED, "no pruning": style.SKY, "no JIT profiling": style.GREEN}
MEAN: Final = "Geometric mean"


def eta_on_front(study: Study) -> Result:
    """The Pareto front, and for each η the best configuration and what Zeus converged to."""
    workload = study.main[ON_FRONT]
    every = points(workload)
    best = front(every)
    lines: list[tuple[Cell, ...]] = [("front", None, *one.cells) for one in best]
    off = 0.0
    for eta in FINE_ETAS:
        model = workload.cost_model(eta)
        least = min(every, key=lambda p, model=model: (model.cost(p.joules, p.seconds), p.seconds))  # type: ignore[misc]
        lines.append(("optimum", eta, *least.cells))
        past = study.past(Case(ON_FRONT, eta=eta))
        seconds, joules = float(past.seconds[:, -LAST:].mean()), float(past.joules[:, -LAST:].mean())
        lines.append(("zeus", eta, None, None, seconds, joules))
        off = max(off, _above(best, seconds, joules))
    columns = ("kind", "eta", "batch_size", "limit_watts", "tta_seconds", "eta_joules")
    lines += _equal_cost(lines, workload.max_watts)
    panel = Panel("figure_11", "DeepSpeech2: optimum and Zeus for η from 0 to 1", columns, rows(lines), HALF)
    fronts = {one.cells for one in best}
    on_front = all(row[2:] in fronts for row in panel.where(kind="optimum").rows)
    numbers = (Number("figure_11.on_front", "yes" if on_front else "no"), Number("figure_11.off", 100 * off))
    return Result((panel,), numbers)


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


def draw_eta_on_front(axes: Axes, panel: Panel) -> None:
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
    axes.set(
        xlim=drawing.around(np.array(shown.column("tta_seconds")) / seconds, 0.2),
        ylim=drawing.around(np.array(shown.column("eta_joules")) / joules, 0.15),
    )
    axes.set(xlabel=f"Time to accuracy ({unit})", ylabel=f"Energy to accuracy ({prefix}J)")
    axes.legend(loc="upper right")


def eta_on_all(study: Study) -> Result:
    """Use of Default / use of Zeus in the last five recurrences, as means over seeds."""
    lines: dict[str, list[tuple[Cell, ...]]] = {"energy": [], "time": []}
    means: dict[str, list[float]] = {"energy": [], "time": []}
    for eta in ETAS:
        ratios = {name: converged(study, Case(name, eta=eta)) for name in study.main}
        for what in lines:
            factors = {name: 1 / float(np.mean(getattr(one, what))) for name, one in ratios.items()}
            factors[MEAN] = geometric_mean(factors.values())
            means[what].append(factors[MEAN])
            lines[what] += [(name, eta, factor) for name, factor in factors.items()]
    columns = ("workload", "eta", "improvement")
    panels = tuple(
        Panel(f"figure_22{letter}", f"Improvement in {what} over Default, by η", columns, rows(lines[what]), HALF)
        for letter, what in (("a", "energy"), ("b", "time"))
    )
    better = {what: "up" if values[-1] > values[0] else "down" for what, values in means.items()}
    note = f"Geometric means for η = {', '.join(map(str, ETAS))}: "
    note += "; ".join(f"{what} " + ", ".join(f"{v:.2f}" for v in values) for what, values in means.items()) + "."
    numbers = (Number("figure_22.energy", better["energy"], note=note), Number("figure_22.time", better["time"]))
    return Result(panels, numbers)


def draw_eta_on_all(axes: Axes, panel: Panel) -> None:
    _lines(axes, panel, "eta", "improvement")
    axes.axhline(1, color=style.BLACK, linewidth=0.8)
    axes.set(xlabel="η (0: only time counts, 1: only energy)", ylabel="Default / Zeus")
    drawing.legend_right(axes)


def _lines(axes: Axes, panel: Panel, x: str, y: str) -> None:
    """One line per workload. The geometric mean is black and wide."""
    for name in panel.values("workload"):
        some, (colour, marker) = panel.where(workload=name), style.WORKLOADS[name]
        width = 2.4 if name == MEAN else 1.2
        axes.plot(some.column(x), some.column(y), f"-{marker}", color=colour, label=name, linewidth=width)


def beta(study: Study) -> Result:
    """Mean energy of all recurrences, relative to β = 2."""
    energy = {
        (name, beta): study.past(Case(name, beta=beta)).joules.sum(axis=1) for name in study.main for beta in BETAS
    }
    lines = [(n, beta, float(some.mean() / energy[n, CHOSEN].mean())) for (n, beta), some in energy.items()]
    means = {beta: geometric_mean(ratio for _, b, ratio in lines if b == beta) for beta in BETAS}
    table = rows([*lines, *((MEAN, beta, mean) for beta, mean in means.items())])
    title = "Cumulative energy by β, relative to β = 2"
    panel = Panel("figure_12", title, ("workload", "beta", "relative_energy"), table, HALF)
    best = min((beta for beta in BETAS if beta >= SWEPT), key=lambda beta: means[beta])
    first, second, *_ = sorted((b for b in BETAS if b >= SWEPT and 2 * b % 1 == 0), key=lambda b: means[b])
    apart = 100 * (means[second] / means[first] - 1)
    note = f"On a grid of halves (1.5, 2, 2.5 ...), ours is {first:g}; {second:g} takes {apart:.2f} % more. "
    note += "Geometric means: " + ", ".join(f"β={beta:g}: {mean:.4f}" for beta, mean in means.items()) + "."
    if best != CHOSEN and study.seeds > 1:  # is the difference larger than the scatter over seeds?
        by_seed = np.exp(np.mean([np.log(energy[n, best] / energy[n, CHOSEN]) for n in study.main], axis=0))
        error = by_seed.std(ddof=1) / np.sqrt(study.seeds)
        note += f" For the same seed, β={best:g} uses {by_seed.mean():.4f} of the energy of β=2 (error {error:.4f})."
    return Result((panel,), (Number("figure_12.best", best, note=note),))


def draw_beta(axes: Axes, panel: Panel) -> None:
    _lines(axes, panel, "beta", "relative_energy")
    axes.set(xlabel="Early-stopping threshold β", ylabel="Cumulative energy / energy at β = 2")
    drawing.legend_right(axes)


def parts(study: Study) -> Result:
    """Sums over all recurrences, as means over seeds, relative to Zeus with all parts."""
    lines = []
    for what in ("seconds", "joules", "cost"):
        for part, policy in PARTS.items():
            ratios = {
                name: getattr(study.past(Case(name, policy)), what).sum(axis=1).mean()
                / getattr(study.past(Case(name)), what).sum(axis=1).mean()
                for name in study.main
            }
            ratios[MEAN] = geometric_mean(ratios.values())
            lines += [(name, f"no {part}", what, ratio) for name, ratio in ratios.items()]
    whole = Panel("figure_13", "", ("workload", "left_out", "quantity", "relative"), rows(lines), HALF)
    panels = tuple(
        Panel(f"figure_13{letter}", f"Cumulative {word} without one part, relative to Zeus", whole.columns,
              whole.where(quantity=what).rows, whole.size)
        for letter, what, word in (("a", "seconds", "time"), ("b", "joules", "energy"), ("c", "cost", "cost"))
    )  # fmt: skip
    means = {part: whole.where(quantity="seconds", workload=MEAN, left_out=f"no {part}") for part in PARTS}
    slowdown = {part: float(one.column("relative")[0]) for part, one in means.items()}
    each = ", ".join(f"{part} {ratio:.3f}" for part, ratio in slowdown.items())
    note = f"Geometric mean of the time relative to Zeus, without {each}."
    return Result(panels, (Number("figure_13.largest", max(slowdown, key=lambda p: slowdown[p]), note=note),))


def draw_parts(axes: Axes, panel: Panel) -> None:
    drawing.bars(axes, panel, "workload", "left_out", "relative", PART_COLOURS, base=1.0, written=drawing.digits)
    axes.axhline(1, color=style.BLACK, linewidth=0.8)
    axes.set_yscale("log")  # one workload is ten times above the rest
    drawing.room_for_values(axes, min(1.0, *panel.column("relative")), max(panel.column("relative")))
    drawing.plain_ticks(axes.yaxis, (1, 1.5, 2, 3, 5, 10, 20))
    word = {"seconds": "time", "joules": "energy", "cost": "cost"}[panel.column("quantity")[0]]
    axes.set_ylabel(f"Cumulative {word} / Zeus")
    drawing.legend_below(axes)


def gpus(study: Study) -> Result:
    """Energy of the last five recurrences, with one geometric mean per seed."""
    lines = []
    for gpu, workloads in study.workloads.items():
        logs = np.log([converged(study, Case(name, gpu=gpu)).energy for name in workloads])
        means = np.exp(logs.mean(axis=0))
        card = style.GPUS.get(gpu, gpu)
        lines += [(card, "Default", 1.0, 1.0, 1.0), (card, "Zeus", means.mean(), means.min(), means.max())]
    title = "Energy, geometric mean of six workloads"
    panel = Panel("figure_14", title, ("gpu", "method", "energy_ratio", "low", "high"), rows(lines), HALF)
    zeus = panel.where(method="Zeus").column("energy_ratio")
    share = 100 * sum(ratio < 1 for ratio in zeus) / len(zeus)
    note = ", ".join(f"{r[0]}: {r[2]:.3f}" for r in panel.where(method="Zeus").rows) + "."
    return Result((panel,), (Number("figure_14.improved", share, note=f"{note} {not_at_hand(study)}".strip()),))


def draw_gpus(axes: Axes, panel: Panel) -> None:
    drawing.bars(axes, panel, "gpu", "method", "energy_ratio", style.METHODS, written="{:.3f}".format)
    drawing.room_for_values(axes, 0, max(panel.column("high")))
    axes.set_ylabel("Energy / Default")
    drawing.legend_below(axes)


FIGURES: Final = (
    Figure("figure_11", "The Pareto front of DeepSpeech2, and how η moves along it (V100)",
           eta_on_front, draw_eta_on_front, lambda study: [Case(ON_FRONT, eta=eta) for eta in FINE_ETAS]),
    Figure("figure_12", "Cumulative energy of Zeus by the early-stopping threshold β (V100)",
           beta, draw_beta, lambda study: [Case(name, beta=one) for name in study.main for one in BETAS]),
    Figure("figure_13", "Cumulative time, energy and cost without one part of Zeus (V100)", parts, draw_parts,
           lambda study: [Case(name, policy) for name in study.main for policy in ("paper", *PARTS.values())]),
    Figure("figure_14", "Geometric mean of the energy relative to Default, by GPU", gpus, draw_gpus,
           lambda study: [Case(name, gpu=gpu) for gpu in study.workloads for name in study.workloads[gpu]]),
    Figure("figure_22", "Improvement in energy and time over Default, by η (V100)",
           eta_on_all, draw_eta_on_all, lambda study: [Case(name, eta=eta) for name in study.main for eta in ETAS]),
)  # fmt: skip
