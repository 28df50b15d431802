"""§2, with Tables 1 and 2 and Appendices A and B: what the traces hold, and what the two knobs could save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from zeus.device.virtual import presets
from zeus.ledger.pareto import front
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import default_point, not_at_hand, points
from zeus.reproduce.panel import HALF, THIRD, Cell, Figure, Number, Panel, Result, rows
from zeus.reproduce.pareto_picture import draw_front
from zeus.reproduce.study import MAIN, ORDER, Study
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRAINED: Final = 4  # runs with different seeds (§6.1)
KNOBS: Final = {
    "Default": style.GREY,
    "Batch size opt.": style.SKY,
    "Power limit opt.": style.ORANGE,
    "Both": style.GREEN,
}
FRONT_COLUMNS: Final = (
    "batch_size", "limit_watts", "tta_seconds", "eta_joules", "average_watts", "on_front", "default",
)  # fmt: skip


def tables(study: Study) -> Result:
    """The workloads and GPUs in the traces (§6.1)."""
    lines: list[tuple[Cell, ...]] = []
    for gpu, workloads in study.workloads.items():
        for name, w in workloads.items():
            runs = [len(some) for some in w.runs.values()]
            card = style.GPUS.get(gpu, gpu)
            lines.append((card, name, w.default, len(w.sizes), len(w.limits), min(runs), max(runs), w.horizon))
    columns = ("gpu", "workload", "b0", "batch_sizes", "power_limits", "runs_fewest", "runs_most", "recurrences")
    panel = Panel("table_1", "Recurrences replayed: 2 x batch sizes x limits", columns, rows(lines), HALF)
    limits = [limit for w in study.main.values() for limit in w.limits]
    traced = {f"{w.name} at {size}": len(some) for w in study.main.values() for size, some in w.runs.items()}
    many = ", ".join(f"{sizes} have {runs} runs" for runs, sizes in sorted(Counter(traced.values()).items()))
    fewer = {
        f"{w.name} at {size} on the {style.GPUS.get(gpu, gpu)} ({len(some)})"
        for gpu, workloads in study.workloads.items()
        for w in workloads.values()
        for size, some in w.runs.items()
        if len(some) < TRAINED
    }
    held = f"Of {len(traced)} pairs of workload and batch size, {many}. With fewer than {TRAINED}: "
    held += f"{', '.join(sorted(fewer)) or 'none'}."
    defaults = ", ".join(str(w.default) for w in study.main.values())
    varies = {name: _variation(w) for name, w in study.main.items()}
    each = "Ours by workload: " + ", ".join(f"{name} {value:.1f} %" for name, value in varies.items()) + "."
    most_epochs = ", ".join(str(w.max_epochs) for w in study.main.values())
    return Result((panel,), (
        Number("table_1.defaults", defaults),
        Number("table_1.limit_low", min(limits)),
        Number("table_1.limit_high", max(limits)),
        Number("table_1.runs", min(traced.values()), note=held),
        Number("table_1.max_epochs", most_epochs, note=_too_late(study)),
        Number("table_1.variation", max(varies.values()), note=each),
        Number("table_1.gpus", sum(gpu in study.workloads for gpu in ORDER), note=not_at_hand(study)),
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


def draw_tables(axes: Axes, panel: Panel) -> None:
    colours = {card: style.CARDS.get(card, style.GREY) for card in panel.values("gpu")}
    drawing.bars(axes, panel, "workload", "gpu", "recurrences", colours)
    axes.set_ylabel("Recurrences")
    drawing.legend_below(axes)


def knobs_panel(workloads: Mapping[str, Workload], name: str, card: str) -> Panel:
    """Least energy relative to Default, by the knobs that may change."""
    lines: list[tuple[Cell, ...]] = []
    for workload, traced in workloads.items():
        every, default = points(traced), default_point(traced)
        chosen = {
            "Default": [default],
            "Batch size opt.": [one for one in every if one.limit_watts == default.limit_watts],
            "Power limit opt.": [one for one in every if one.batch_size == default.batch_size],
            "Both": every,
        }
        lines += [(workload, knob, min(o.joules for o in some) / default.joules) for knob, some in chosen.items()]
    title = f"Energy to accuracy relative to Default, {card}"
    return Panel(name, title, ("workload", "knobs", "energy_ratio"), rows(lines), HALF)


def knobs(study: Study) -> Result:
    panel = knobs_panel(study.main, "figure_01", "V100")
    numbers = []
    for short, knob in (("batch", "Batch size opt."), ("limit", "Power limit opt."), ("joint", "Both")):
        saved = [100 * (1 - ratio) for ratio in panel.where(knobs=knob).column("energy_ratio")]
        numbers += [Number(f"figure_01.{short}_low", min(saved)), Number(f"figure_01.{short}_high", max(saved))]
    return Result((panel,), tuple(numbers))


def knobs_by_gpu(study: Study) -> Result:
    panels = tuple(
        knobs_panel(workloads, f"figure_15_{gpu}", style.GPUS.get(gpu, gpu))
        for gpu, workloads in study.workloads.items()
    )
    saved = [1 - ratio for panel in panels for ratio in panel.where(knobs="Both").column("energy_ratio")]
    p100 = Number("figure_15.p100", "shown" if "p100" in study.workloads else None, note=not_at_hand(study))
    remark = f"For every GPU and workload, batch size and power limit together save at least {min(saved):.0%}."
    return Result(panels, (p100,), remark)


def draw_knobs(axes: Axes, panel: Panel) -> None:
    drawing.bars(axes, panel, "workload", "knobs", "energy_ratio", KNOBS, written=drawing.digits)
    axes.set_ylabel("Energy / Default")
    drawing.room_for_values(axes, 0, 1)
    drawing.legend_below(axes)


def front_panel(workload: Workload, name: str, title: str, size: tuple[float, float] = THIRD) -> Panel:
    """Every configuration, by time."""
    every, default = sorted(points(workload), key=lambda p: p.seconds), default_point(workload)
    best = set(front(every))
    lines = [(*one.cells, one.joules / one.seconds, one in best, one == default) for one in every]
    return Panel(name, title, FRONT_COLUMNS, rows(lines), size)


def deepspeech2(study: Study) -> Result:
    workload = study.main["DeepSpeech2"]
    whole = front_panel(workload, "figure_02a", "DeepSpeech2: every configuration (V100)", HALF)
    near = front_panel(workload, "figure_02b", "DeepSpeech2: the Pareto front (batch size, power limit)", HALF)
    every = points(workload)
    least, fastest = min(every, key=lambda p: p.joules), min(every, key=lambda p: p.seconds)
    watts = whole.column("average_watts")
    numbers = (
        Number("figure_02.energy_batch", least.batch_size),
        Number("figure_02.energy_limit", least.limit_watts),
        Number("figure_02.time_batch", fastest.batch_size),
        Number("figure_02.time_limit", fastest.limit_watts),
        Number("figure_02.heavy_load", max(watts)),
        Number("figure_02.light_load", min(watts)),
        _idle(study),
        Number("figure_02.default_beaten", "no" if whole.where(default=True, on_front=True).rows else "yes"),
    )
    return Result((whole, near), numbers)


def _idle(study: Study) -> Number:
    """An upper bound of the idle power: a card that trains draws at least as much as an idle one."""
    watts = {name: min(s.watts for p in w.profiles.values() for s in p.slices) for name, w in study.main.items()}
    least = min(watts, key=lambda name: watts[name])
    fitted = presets.card(MAIN).idle_watts
    note = f"{least} trains at {watts[least]:.1f} W on average. The fitted virtual V100 idles at {fitted:.1f} W."
    return Number("figure_02.idle", watts[least], note=note)


def draw_deepspeech2(axes: Axes, panel: Panel) -> None:
    """Panel a: all configurations and two lines of constant average power. Panel b: the Pareto front."""
    near = panel.name.endswith("b")
    draw_front(axes, panel, zoom=near, annotate=near)
    if near:
        drawing.legend_below(axes)  # inside, it would hide points
        return
    seconds, _ = drawing.seconds_scaled(panel.column("tta_seconds"))
    joules, _ = drawing.scaled(panel.column("eta_joules"))
    ends = np.array([0.0, max(panel.column("tta_seconds"))])
    for watts, look in ((max(panel.column("average_watts")), "--"), (min(panel.column("average_watts")), ":")):
        label = f"{watts:.0f} W on average"
        axes.plot(ends / seconds, ends * watts / joules, look, color=style.GREY, label=label, zorder=1)
    axes.set_ylim(0, 1.05 * max(panel.column("eta_joules")) / joules)
    axes.set_xlim(left=0)
    axes.legend(loc="upper left")


def fronts(study: Study) -> Result:
    panels = tuple(
        front_panel(workload, f"figure_16{letter}", f"{name}: energy and time, with the Pareto front")
        for letter, (name, workload) in zip("abcdef", study.main.items(), strict=True)
    )
    beaten = sum(not panel.where(default=True, on_front=True).rows for panel in panels)
    return Result(panels, (Number("figure_16.default_beaten", beaten),), "The axes do not start at 0.")


def draw_fronts(axes: Axes, panel: Panel) -> None:
    """Zoomed to the Pareto front and Default, so the axes do not start at 0."""
    draw_front(axes, panel, zoom=True)
    axes.legend(loc="best")


FIGURES: Final = (
    Figure("table_1", "Workloads, batch sizes and power limits in the traces (Tables 1 and 2)", tables, draw_tables),
    Figure("figure_01", "Energy that the best batch size, power limit or both would save (V100)", knobs, draw_knobs),
    Figure("figure_02", "Energy and time of DeepSpeech2 in every configuration (V100)", deepspeech2, draw_deepspeech2),
    Figure("figure_15", "Energy that the best batch size, power limit or both would save, by GPU",
           knobs_by_gpu, draw_knobs),
    Figure("figure_16", "Energy and time of all workloads, near the Pareto front (V100)", fronts, draw_fronts),
)  # fmt: skip
