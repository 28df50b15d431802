"""§3 and §4, with Appendix C: how Zeus works, the sizes that it chooses, and the curves that it searches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from zeus.job import Ending, Phase
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import point
from zeus.reproduce.panel import HALF, Figure, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BOXES: Final = {  # place across and up, from 0 to 10, and colour
    "user": (0.5, 8.0, "#EEEEEE"),
    "batch size\npolicy": (3.5, 8.0, "#D6ECFA"),
    "training": (6.5, 8.0, "#EEEEEE"),
    "power limit\noptimizer": (9.3, 8.0, "#FBE6B8"),
    "store": (3.5, 1.5, "#F3DCE8"),
    "GPU": (9.3, 1.5, "#EEEEEE"),
}
STEPS: Final = (  # from, to, what, and where the text stands
    ("user", "batch size\npolicy", "1. job: sizes, target, η", (1.75, 9.0)),
    ("batch size\npolicy", "training", "2. size, and most cost", (5.08, 9.0)),
    ("training", "power limit\noptimizer", "3. each step", (7.75, 9.0)),
    ("power limit\noptimizer", "GPU", "4. profiles limits, sets the best", (8.4, 4.7)),
    ("training", "store", "5. energy and time, up to the target or an early stop", (5.2, 2.7)),
    ("store", "batch size\npolicy", "6. what is known, for the next recurrence", (2.3, 4.7)),
)
EXAMPLE: Final = Case("ShuffleNet-v2")
SHOWN: Final = 60  # recurrences; little changes after them
ZOOMED: Final = "The energy axis does not start at 0, so that the valley can be seen."


def parts(study: Study) -> Result:
    del study  # a drawing
    lines = rows((one.replace("\n", " "), other.replace("\n", " "), what) for one, other, what, _ in STEPS)
    panel = Panel("figure_03", "The parts of Zeus, and what they tell each other", ("from", "to", "what"), lines, HALF)
    return Result((panel,), remark="A drawing of ours, without data. The paper's has the same parts.")


def draw_parts(axes: Axes, panel: Panel) -> None:
    """Boxes, with an arrow and its text for each step."""
    del panel
    axes.set_axis_off()
    axes.set(xlim=(0, 10), ylim=(0, 10))
    boxes = {}
    for name, (x, y, colour) in BOXES.items():
        look = {"boxstyle": "round,pad=0.7", "facecolor": colour, "edgecolor": style.GREY}
        boxes[name] = axes.text(
            x, y, name, fontsize=9.5, fontweight="bold", ha="center", va="center", zorder=3, bbox=look
        )
    for start, end, what, place in STEPS:
        (x, y, _), (u, v, _) = BOXES[start], BOXES[end]
        arrow: dict[str, Any] = {"arrowstyle": "-|>", "color": style.GREY, "shrinkA": 0, "shrinkB": 2}
        if x != u and y != v:
            arrow["connectionstyle"] = "angle,angleA=-90,angleB=180"
        arrow |= {"patchA": boxes[start].get_bbox_patch(), "patchB": boxes[end].get_bbox_patch()}
        axes.annotate("", (u, v), (x, y), zorder=1, arrowprops=arrow)
        axes.text(*place, fill(what, 20 if y != v else 14), fontsize=8.5, ha="center", va="center", zorder=2)


def choices(study: Study) -> Result:
    """Pruning, then sampling."""
    lines = []
    for number, recurrence in enumerate(study.tries(EXAMPLE)[:SHOWN], start=1):
        for one in recurrence.tries:
            phase = "pruning" if one.decision.phase is Phase.PRUNING else "sampling"
            lines.append((number, one.decision.batch_size, phase, one.outcome.ending is Ending.CONVERGED))
    columns = ("recurrence", "batch_size", "phase", "reached_target")
    title = "Batch size of every trial (cross: stopped early and retried)"
    panel = Panel("figure_04", title, columns, rows(lines), HALF)
    looks = Counter(panel.where(phase="pruning", reached_target=True).column("batch_size"))
    times = {looks[size] for size in panel.where(phase="sampling").column("batch_size")}
    return Result((panel,), (Number("figure_04.looks", max(times) if len(times) == 1 else str(sorted(times))),))


def draw_choices(axes: Axes, panel: Panel) -> None:
    """Dots coloured by phase. Crosses are trials that were stopped."""
    for phase, colour in (("pruning", style.ORANGE), ("sampling", style.BLUE)):
        reached, missed = (panel.where(phase=phase, reached_target=flag) for flag in (True, False))
        axes.plot(reached.column("recurrence"), reached.column("batch_size"), "o", color=colour, label=phase)
        if missed.rows:
            label = f"{phase}, stopped"
            axes.plot(missed.column("recurrence"), missed.column("batch_size"), "x", color=colour, label=label)
    axes.set_yscale("log", base=2)
    sizes = sorted(set(panel.column("batch_size")))
    axes.set_yticks(sizes, [str(size) for size in sizes])
    axes.set(xlabel="Recurrence", ylabel="Batch size")
    axes.legend(loc="upper right")


def size_panel(workload: Workload, name: str) -> Panel:
    """ETA at the highest limit: mean and range over the traced runs that reach the target."""
    lines = []
    for size in workload.sizes:
        reached = [n for n in workload.runs[size] if n is not None and n <= workload.max_epochs]
        if reached:
            joules = workload.profiles[size].slices[0].joules
            ends = (sum(reached) / len(reached), min(reached), max(reached))
            lines.append((size, *(joules * n for n in ends), len(reached), len(workload.runs[size])))
    columns = ("batch_size", "eta_joules", "low", "high", "runs_that_reached", "runs")
    return Panel(name, f"{workload.name}: energy by batch size at {workload.max_watts:g} W", columns, rows(lines))


def wrong_turns(panel: Panel, *, by_means: bool = False) -> int:
    """Count the steps between neighbours that rise before the least mean or fall after it.

    A step counts only if the ranges over runs do not overlap; with `by_means`, whenever the means differ. A curve with
    a single valley has no such step.

    >>> columns = ("batch_size", "eta_joules", "low", "high")
    >>> panel = Panel("a", "", columns, ((8, 5, 4, 6), (16, 7, 5.5, 8), (32, 1, 1, 1), (64, 2, 2, 2)))
    >>> wrong_turns(panel), wrong_turns(panel, by_means=True)
    (0, 1)
    """
    curve = _curve(panel, by_means)
    least = min(range(len(curve)), key=lambda at: panel.column("eta_joules")[at])
    steps = list(pairwise(curve))
    rises = sum(after[0] > before[1] for before, after in steps[:least])
    return rises + sum(after[1] < before[0] for before, after in steps[least:])


def bends_up(panel: Panel) -> bool:
    """Whether the means are convex in the logarithm of the batch size.

    >>> columns = ("batch_size", "eta_joules")
    >>> [bends_up(Panel("a", "", columns, ((8, 5), (16, 2), (32, top)))) for top in (1, -2)]
    [True, False]
    """
    places = np.log2(panel.column("batch_size"))
    slopes = np.diff(panel.column("eta_joules")) / np.diff(places)
    return bool((np.diff(slopes) >= 0).all())


def _curve(panel: Panel, by_means: bool) -> Sequence[tuple[float, float]]:
    ends = ("eta_joules", "eta_joules") if by_means else ("low", "high")
    return list(zip(*(panel.column(name) for name in ends), strict=True))


def one_curve(study: Study) -> Result:
    panel = size_panel(study.main["DeepSpeech2"], "figure_05")
    means = f"By the means alone there are {wrong_turns(panel, by_means=True)} such steps."
    return Result((panel,), (Number("figure_05.wrong_turns", wrong_turns(panel), note=means),), ZOOMED)


def size_curves(study: Study) -> Result:
    panels = {
        name: size_panel(workload, f"figure_17{letter}")
        for letter, (name, workload) in zip("abcdef", study.main.items(), strict=True)
    }
    turns = {name: (wrong_turns(panel), wrong_turns(panel, by_means=True)) for name, panel in panels.items()}
    convex = [name for name, panel in panels.items() if bends_up(panel)]
    note = (
        "Steps in the wrong direction, beyond the ranges / by the means alone: "
        + ", ".join(f"{name} {sure} / {means}" for name, (sure, means) in turns.items())
        + f". Convex in the strict sense (means, over the logarithm of the size): {', '.join(convex) or 'none'}."
    )
    number = Number("figure_17.one_valley", sum(not sure for sure, _ in turns.values()), note=note)
    return Result(tuple(panels.values()), (number,), ZOOMED)


def draw_size_curve(axes: Axes, panel: Panel) -> None:
    joules, prefix = drawing.scaled(panel.column("high"))
    drawing.line_with_band(axes, panel, "batch_size", "eta_joules", style.BLUE, "mean; band: range over runs", joules)
    energies = [value / joules for value in panel.column("eta_joules")]
    axes.plot(panel.column("batch_size"), energies, "o", color=style.BLUE)
    drawing.mark_least(axes, panel.column("batch_size"), energies)
    low, high = min(panel.column("low")) / joules, max(panel.column("high")) / joules
    if high > 3 * low:  # else the valley would be flat beside its steep side
        axes.set_yscale("log")
        axes.set_ylim(low / 1.2, high * 1.2)
        drawing.plain_ticks(axes.yaxis, drawing.ROUND)
    drawing.batch_axis(axes, panel.column("batch_size"))
    axes.set_ylabel(f"Energy to accuracy ({prefix}J)")
    axes.legend(loc="best")


def limit_panel(workload: Workload, name: str) -> Panel:
    every = [point(workload, workload.default, one.limit_watts) for one in workload.profiles[workload.default].slices]
    lines = [(one.limit_watts, one.joules, one.seconds) for one in reversed(every)]
    title = f"{workload.name}: energy by power limit at batch size {workload.default}"
    return Panel(name, title, ("limit_watts", "eta_joules", "tta_seconds"), rows(lines))


def limit_curves(study: Study) -> Result:
    panels = tuple(limit_panel(w, f"figure_18{at}") for at, w in zip("abcdef", study.main.values(), strict=True))
    below = 0
    for panel in panels:
        limits, energies = panel.column("limit_watts"), panel.column("eta_joules")
        below += limits[energies.index(min(energies))] < max(limits)
    return Result(panels, (Number("figure_18.below_highest", below),), ZOOMED)


def draw_limit_curve(axes: Axes, panel: Panel) -> None:
    joules, prefix = drawing.scaled(panel.column("eta_joules"))
    energies = [value / joules for value in panel.column("eta_joules")]
    axes.plot(panel.column("limit_watts"), energies, "-o", color=style.BLUE)
    drawing.mark_least(axes, panel.column("limit_watts"), energies)
    axes.set_ylim(drawing.around(np.array(energies), 0.15))
    axes.set(xlabel="Power limit (W)", ylabel=f"Energy to accuracy ({prefix}J)")
    axes.legend(loc="best")


FIGURES: Final = (
    Figure("figure_03", "How Zeus works on a recurring job", parts, draw_parts),
    Figure("figure_04", "Batch sizes chosen for a recurring job, from pruning to sampling (ShuffleNet-v2, V100)",
           choices, draw_choices),
    Figure("figure_05", "Energy of DeepSpeech2 by batch size (V100)", one_curve, draw_size_curve),
    Figure("figure_17", "Energy by batch size for all workloads (V100)", size_curves, draw_size_curve),
    Figure("figure_18", "Energy by power limit for all workloads (V100)", limit_curves, draw_limit_curve),
)  # fmt: skip
