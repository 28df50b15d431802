"""§6.6: Zeus against a goodput tuner like Pollux, for DeepSpeech2 on four A40s, modelled from one."""

from __future__ import annotations

from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, Final

from zeus.errors import InputError
from zeus.reproduce import drawing, style
from zeus.reproduce.derived import over_seeds, unknown
from zeus.reproduce.panel import Cell, Figure, Panel, Result, rows
from zeus.reproduce.study import Case, Floats, Study, replayed
from zeus.simulate import pollux
from zeus.simulate.results import LAST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME: Final = "section_66"
WORKLOAD: Final = "DeepSpeech2"
GPUS: Final = 4
RECURRENCES: Final = 50  # of the tuner, which learns nothing between them


def compute(study: Study) -> Result:
    """The last five recurrences of Zeus, over seeds, relative to the mean of the tuner, on one A40 and on four."""
    try:
        if WORKLOAD not in study.workloads.get("a40", {}):
            raise InputError(f"There is no power trace of {WORKLOAD} on the A40.")
        traces = study.data / "pollux_osdi21" / "traces"
        noise = pollux.noise_scale(WORKLOAD, traces)
        one = study.workloads["a40"][WORKLOAD]
        nodes = {1: one, GPUS: pollux.on_gpus(one, GPUS, traces)}
    except InputError as wrong:
        return unknown(NAME, ("energy", "time"), str(wrong))
    lines: list[tuple[Cell, ...]] = []
    saved: dict[int, Floats] = {}  # energy, in percent
    longer: dict[int, Floats] = {}  # time, in percent
    for gpus, workload in nodes.items():
        past = replayed((workload, Case(WORKLOAD, gpu="a40"), study.seeds))
        tuned = list(islice(pollux.replay(workload, noise, seed=0), RECURRENCES))
        energy = past.joules[:, -LAST:].mean(axis=1) / fmean(r.joules for r in tuned)
        time = past.seconds[:, -LAST:].mean(axis=1) / fmean(r.seconds for r in tuned)
        for what, values in (("energy", energy), ("time", time)):
            lines.append((f"{gpus} x A40", what, values.mean(), values.min(), values.max()))
        saved[gpus], longer[gpus] = 100 * (1 - energy), 100 * (time - 1)
    alone = f"On one A40, as in the trace: {longer[1].mean():+.1f} %."
    numbers = (over_seeds(f"{NAME}.energy", saved[GPUS]), over_seeds(f"{NAME}.time", longer[GPUS], alone))
    columns = ("gpus", "quantity", "ratio", "low", "high")
    panel = Panel(NAME, "DeepSpeech2: Zeus against the goodput tuner", columns, rows(lines))
    remark = (
        "The tuner follows Pollux's rule with its published noise scale, of the same network on other speech data. The "
        f"{GPUS} GPUs are modelled from the trace of one A40 and Pollux's measured slow-down; the paper measured "
        f"real ones. Batch sizes are {nodes[GPUS].sizes}. The tuner starts at "
        f"{pollux.choose(nodes[GPUS], noise, done=0.0)}."
    )
    return Result((panel,), numbers, remark)


def draw(axes: Axes, panel: Panel) -> None:
    drawing.bars(axes, panel, "gpus", "quantity", "ratio", {"energy": style.ORANGE, "time": style.SKY})
    axes.axhline(1, color=style.BLACK, linewidth=0.8)
    axes.set_ylabel("Zeus / goodput tuner")
    drawing.legend_below(axes)


FIGURES: Final = (Figure(NAME, "Zeus against a goodput tuner like Pollux (DeepSpeech2, A40)", compute, draw),)
