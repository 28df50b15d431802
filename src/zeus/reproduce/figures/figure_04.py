"""Figure 4 (§4.4): the batch sizes that Zeus chooses for a recurring job, in pruning and then in sampling."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from zeus.job import Ending, Phase
from zeus.reproduce import style
from zeus.reproduce.panel import HALF, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "figure_04"
TITLE = "Batch sizes chosen for a recurring job, from pruning to sampling (ShuffleNet-v2, V100)"
CASE = Case("ShuffleNet-v2")
SHOWN = 60  # recurrences; little changes after them


def compute(study: Study) -> Result:
    lines = []
    for number, recurrence in enumerate(study.tries(CASE)[:SHOWN], start=1):
        for one in recurrence.tries:
            phase = "pruning" if one.decision.phase is Phase.PRUNING else "sampling"
            lines.append((number, one.decision.batch_size, phase, one.outcome.ending is Ending.CONVERGED))
    panel = Panel(
        NAME,
        "Batch size of every trial (cross: stopped early and retried)",
        ("recurrence", "batch_size", "phase", "reached_target"),
        rows(lines),
        HALF,
    )
    looks = Counter(panel.where(phase="pruning", reached_target=True).column("batch_size"))
    kept = set(panel.where(phase="sampling").column("batch_size"))
    times = {looks[size] for size in kept}
    return Result((panel,), (Number(f"{NAME}.looks", max(times) if len(times) == 1 else str(sorted(times))),))


def draw(axes: Axes, panel: Panel) -> None:
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
    axes.set_xlabel("Recurrence")
    axes.set_ylabel("Batch size")
    axes.legend(loc="upper right")
