"""§6.5: what profiling every limit for five seconds costs, reckoned from the power trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from zeus.reproduce import drawing, style
from zeus.reproduce.panel import Number, Panel, Result, rows
from zeus.reproduce.study import Study
from zeus.simulate.workload import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "section_65"
TITLE = "Overhead of profiling the power limits just in time (V100)"
SECONDS: Final = 5.0  # of profiling for each limit (§5)


class Overhead(NamedTuple):
    """Of a training at the highest limit that profiles at its start, against one that does not; in percent."""

    time: float
    energy: float


def overhead(workload: Workload) -> Overhead:
    """The default batch size; work done while profiling counts, as it trains the model too."""
    profile = workload.profiles[workload.default]
    highest = profile.slices[0]
    epochs = workload.epochs_charged(workload.default)
    worked = sum(SECONDS / one.seconds for one in profile.slices)  # epochs
    seconds = SECONDS * len(profile.slices) - worked * highest.seconds
    joules = sum(SECONDS * one.watts for one in profile.slices) - worked * highest.joules
    return Overhead(100 * seconds / (epochs * highest.seconds), 100 * joules / (epochs * highest.joules))


def compute(study: Study) -> Result:
    """From the traces alone."""
    every = {name: overhead(workload) for name, workload in study.main.items()}
    lines = [(name, what, value) for name, one in every.items() for what, value in one._asdict().items()]
    panel = Panel(
        NAME, "Profiling every limit for 5 s, reckoned", ("workload", "quantity", "overhead_percent"), rows(lines)
    )
    numbers = [
        Number(f"{NAME}.{short}_{what}", value)
        for short, name in (("deepspeech2", "DeepSpeech2"), ("shufflenet", "ShuffleNet-v2"))
        for what, value in every[name]._asdict().items()
    ]
    taken = max(SECONDS * len(workload.limits) for workload in study.main.values())
    numbers.append(Number(f"{NAME}.seconds", "less than a minute" if taken < 60 else f"{taken:g} s"))
    return Result((panel,), tuple(numbers))


def draw(axes: Axes, panel: Panel) -> None:
    """Two bars a workload."""
    drawing.bars(axes, panel, "workload", "quantity", "overhead_percent", {"time": style.SKY, "energy": style.ORANGE})
    axes.axhline(0, color=style.BLACK, linewidth=0.8)
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_ylim(-3, 3)
    axes.set_ylabel("Added by profiling (%)")
    drawing.legend_below(axes)
