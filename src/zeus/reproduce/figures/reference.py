"""Compares our replay with an independent simulator of the paper's policy, on the same traces of three GPUs.

Both use all batch sizes of the traces, 2 and 4 too. All other figures keep to the paper's sweep, from 8 up.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from zeus.reproduce import drawing, style
from zeus.reproduce.comparison import Expected
from zeus.reproduce.derived import converged
from zeus.reproduce.panel import HALF, Figure, Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study
from zeus.simulate import regret

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME: Final = "reference"
RATIO: Final = 0.04  # tolerance of a ratio to Default; reference.toml says why
REGRET: Final = 0.30  # relative tolerance of a regret
QUANTITIES: Final = {
    "energy": "energy of the last five recurrences / Default",
    "time": "time of the last five recurrences / Default",
    "regret": "cumulative regret",
}


class Numbers(NamedTuple):
    """Energy and time of the last five recurrences relative to Default, and the cumulative regret."""

    energy: float
    time: float
    regret: float


def table() -> dict[str, dict[str, Numbers]]:
    """The numbers of the other simulator, by GPU and workload."""
    text = (files("zeus.reproduce") / "reference.toml").read_text(encoding="utf-8")
    return {gpu: {name: Numbers(*row) for name, row in one.items()} for gpu, one in tomllib.loads(text).items()}


def expected() -> list[Expected]:
    """The numbers of the other simulator as expected numbers."""
    return [
        Expected(
            _id(gpu, name, what),
            f"{name} on {style.GPUS[gpu]}: {QUANTITIES[what]}",
            value,
            "J" if what == "regret" else "",
            "the other simulator, not the paper",
            REGRET * value if what == "regret" else RATIO,
            kind="simulator",
        )
        for gpu, row in table().items()
        for name, numbers in row.items()
        for what, value in numbers._asdict().items()
    ]


def _id(gpu: str, workload: str, what: str) -> str:
    return f"{NAME}.{gpu}_{workload}_{what}"


def cases(study: Study) -> list[Case]:
    return [
        case_of(study, gpu, name)
        for gpu, row in table().items()
        for name in row
        if name in study.every_size.get(gpu, {})
    ]


def case_of(study: Study, gpu: str, name: str) -> Case:
    """The other simulator used all sizes of the traces, so this comparison does too."""
    smaller = study.every_size[gpu][name].sizes != study.workloads[gpu][name].sizes
    return Case(name, gpu=gpu, every_size=smaller)


def mean(study: Study, case: Case) -> Numbers:
    """Our numbers, as means over seeds."""
    ratios, least = converged(study, case), regret.optimum(study.workload(case), case.eta)
    total = (study.past(case).cost - least).sum(axis=1)
    return Numbers(float(ratios.energy.mean()), float(ratios.time.mean()), float(total.mean()))


def compute(study: Study) -> Result:
    numbers, lines = [], []
    for gpu, row in table().items():
        for name, theirs in row.items():
            if name not in study.every_size.get(gpu, {}):
                why = f"There is no power trace of the {style.GPUS[gpu]}."
                numbers += [Number(_id(gpu, name, what), None, note=why) for what in theirs._fields]
                continue
            ours = mean(study, case_of(study, gpu, name))
            for what, value in ours._asdict().items():
                numbers.append(Number(_id(gpu, name, what), value))
                lines.append((style.GPUS[gpu], name, what, value / getattr(theirs, what)))
    columns = ("gpu", "workload", "quantity", "ours_over_theirs")
    panels = [
        Panel(f"{NAME}_{what}", f"Our {what} / the other simulator's", columns,
              rows(line for line in lines if line[2] == what), HALF)
        for what in Numbers._fields
    ]  # fmt: skip
    return Result(tuple(panels), tuple(numbers))


def draw(axes: Axes, panel: Panel) -> None:
    """One bar per GPU and workload. 1 means agreement."""
    drawing.bars(axes, panel, "workload", "gpu", "ours_over_theirs", style.CARDS)
    axes.axhline(1, color=style.BLACK, linewidth=0.8)
    axes.set_ylabel("Ours / theirs")
    drawing.legend_below(axes)


FIGURES: Final = (
    Figure(NAME, "The paper's policy, compared with an independent simulator", compute, draw, cases, who="They get"),
)
