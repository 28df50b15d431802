"""Figure 13 (§6.7): cumulative use when one part of Zeus is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import geometric_mean
from zeus.reproduce.panel import HALF, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_13"
TITLE = "Cumulative time, energy and cost without one part of Zeus (V100)"
PARTS = {"early stopping": "paper:no-early-stop", "pruning": "paper:no-pruning", "JIT profiling": "paper:no-jit"}
COLOURS = {"no early stopping": style.RED, "no pruning": style.SKY, "no JIT profiling": style.GREEN}
MEAN = "Geometric mean"


def cases(study: Study) -> list[Case]:
    return [Case(name, policy) for name in study.main for policy in ("paper", *PARTS.values())]


def compute(study: Study) -> Result:
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
    whole = Panel(NAME, "", ("workload", "left_out", "quantity", "relative"), rows(lines), HALF)
    panels = tuple(
        Panel(f"{NAME}{letter}", f"Cumulative {word} without one part, relative to Zeus", whole.columns,
              whole.where(quantity=what).rows, whole.size)
        for letter, what, word in (("a", "seconds", "time"), ("b", "joules", "energy"), ("c", "cost", "cost"))
    )  # fmt: skip
    means = {part: whole.where(quantity="seconds", workload=MEAN, left_out=f"no {part}") for part in PARTS}
    slowdown = {part: float(one.column("relative")[0]) for part, one in means.items()}
    note = (
        "Geometric mean of the time relative to Zeus, without "
        + ", ".join(f"{p} {r:.3f}" for p, r in slowdown.items())
        + "."
    )
    return Result(panels, (Number(f"{NAME}.largest", max(slowdown, key=lambda p: slowdown[p]), note=note),))


def draw(axes: Axes, panel: Panel) -> None:
    drawing.bars(axes, panel, "workload", "left_out", "relative", COLOURS, base=1.0, written=drawing.digits)
    axes.axhline(1, color=style.BLACK, linewidth=0.8)
    axes.set_yscale("log")  # one workload is ten times above the rest
    drawing.room_for_values(axes, min(1.0, *panel.column("relative")), max(panel.column("relative")))
    drawing.plain_ticks(axes.yaxis, (1, 1.5, 2, 3, 5, 10, 20))
    word = {"seconds": "time", "joules": "energy", "cost": "cost"}[panel.column("quantity")[0]]
    axes.set_ylabel(f"Cumulative {word} / Zeus")
    drawing.legend_below(axes)
