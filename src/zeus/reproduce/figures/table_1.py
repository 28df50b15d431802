"""Tables 1 and 2 (§6.1): the workloads and GPUs in the traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import not_at_hand
from zeus.reproduce.panel import HALF, Cell, Number, Panel, Result, rows
from zeus.reproduce.study import ORDER, Study
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "table_1"
TRAINED = 4  # runs with different seeds (§6.1)
TITLE = "Workloads, batch sizes and power limits in the traces (Tables 1 and 2)"


def compute(study: Study) -> Result:
    lines: list[tuple[Cell, ...]] = []
    for gpu, workloads in study.workloads.items():
        for name, w in workloads.items():
            runs = [len(some) for some in w.runs.values()]
            card = style.GPUS.get(gpu, gpu)
            lines.append((card, name, w.default, len(w.sizes), len(w.limits), min(runs), max(runs), w.horizon))
    columns = ("gpu", "workload", "b0", "batch_sizes", "power_limits", "runs_fewest", "runs_most", "recurrences")
    panel = Panel(NAME, "Recurrences replayed: 2 x batch sizes x limits", columns, rows(lines), HALF)
    limits = [limit for w in study.main.values() for limit in w.limits]
    traced = {f"{w.name} at {size}": len(some) for w in study.main.values() for size, some in w.runs.items()}
    fewer = ", ".join(f"{what} ({number})" for what, number in traced.items() if number < TRAINED) or "none"
    held = f"At most {max(traced.values())} runs per size. Fewer than {TRAINED} runs: {fewer}."
    defaults = ", ".join(str(w.default) for w in study.main.values())
    varies = {name: _variation(w) for name, w in study.main.items()}
    each = "Ours by workload: " + ", ".join(f"{name} {value:.1f} %" for name, value in varies.items()) + "."
    return Result((panel,), (
        Number(f"{NAME}.defaults", defaults),
        Number(f"{NAME}.limit_low", min(limits)),
        Number(f"{NAME}.limit_high", max(limits)),
        Number(f"{NAME}.runs", min(traced.values()), note=held),
        Number(f"{NAME}.max_epochs", ", ".join(str(w.max_epochs) for w in study.main.values()), note=_too_late(study)),
        Number(f"{NAME}.variation", max(varies.values()), note=each),
        Number(f"{NAME}.gpus", sum(gpu in study.workloads for gpu in ORDER), note=not_at_hand(study)),
    ))  # fmt: skip


def _variation(workload: Workload) -> float:
    """Range of the epochs to target over its mean, at the default batch size, in percent."""
    reached = [n for n in workload.runs[workload.default] if n is not None and n <= workload.max_epochs]
    return 100 * (max(reached) - min(reached)) * len(reached) / sum(reached)


def _too_late(study: Study) -> str:
    """The sizes of which some traced run reaches the target, but only after max_epochs."""
    late = []
    for name, w in study.main.items():
        for size, runs in w.runs.items():
            after = sorted(n for n in runs if n is not None and n > w.max_epochs)
            if after:
                when = f"{after[0]}" if after[0] == after[-1] else f"{after[0]} to {after[-1]}"
                late.append(f"{name} at {size} ({len(after)} of {len(runs)} runs, after {when} epochs)")
    return f"Traced runs that reach the target later count as failed: {'; '.join(late) or 'none'}."


def draw(axes: Axes, panel: Panel) -> None:
    colours = {card: style.CARDS.get(card, style.GREY) for card in panel.values("gpu")}
    drawing.bars(axes, panel, "workload", "gpu", "recurrences", colours)
    axes.set_ylabel("Recurrences")
    drawing.legend_below(axes)
