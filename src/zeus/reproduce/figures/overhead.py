"""§6.5: the overhead of profiling every limit for five seconds, computed from the power trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from zeus.optimizer.power_limit.profiler import PAPER_SECONDS
from zeus.reproduce import drawing, style
from zeus.reproduce.panel import HALF, Figure, Number, Panel, Result, rows
from zeus.reproduce.study import Study
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME: Final = "section_65"


class Overhead(NamedTuple):
    """Added use of a run at the highest limit that first profiles all limits, in percent."""

    time: float
    energy: float


def overhead(workload: Workload) -> Overhead:
    """Overhead at the default batch size. Steps made while profiling count as training."""
    profile = workload.profiles[workload.default]
    highest = profile.slices[0]
    epochs = workload.epochs_charged(workload.default)
    worked = sum(PAPER_SECONDS / one.seconds for one in profile.slices)  # epochs trained while profiling
    seconds = PAPER_SECONDS * len(profile.slices) - worked * highest.seconds
    joules = sum(PAPER_SECONDS * one.watts for one in profile.slices) - worked * highest.joules
    return Overhead(100 * seconds / (epochs * highest.seconds), 100 * joules / (epochs * highest.joules))


def compute(study: Study) -> Result:
    every = {name: overhead(workload) for name, workload in study.main.items()}
    lines = [(name, what, value) for name, one in every.items() for what, value in one._asdict().items()]
    panel = Panel(
        NAME,
        "Overhead of profiling every limit for 5 s, computed",
        ("workload", "quantity", "overhead_percent"),
        rows(lines),
        HALF,
    )
    numbers = [
        Number(f"{NAME}.{short}_{what}", value)
        for short, name in (("deepspeech2", "DeepSpeech2"), ("shufflenet", "ShuffleNet-v2"))
        for what, value in every[name]._asdict().items()
    ]
    taken = max(PAPER_SECONDS * len(workload.limits) for workload in study.main.values())
    numbers.append(Number(f"{NAME}.seconds", "less than a minute" if taken < 60 else f"{taken:g} s"))
    return Result((panel,), tuple(numbers))


def draw(axes: Axes, panel: Panel) -> None:
    drawing.bars(axes, panel, "workload", "quantity", "overhead_percent", {"time": style.SKY, "energy": style.ORANGE})
    axes.axhline(0, color=style.BLACK, linewidth=0.8)
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_ylim(-3, 3)
    axes.set_ylabel("Added by profiling (%)")
    drawing.legend_below(axes)


FIGURES: Final = (Figure(NAME, "Overhead of just-in-time profiling (V100)", compute, draw),)
