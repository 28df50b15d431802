"""Beside an independent simulator of the paper's algorithm: the same policy on the same traces, three GPUs."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from zeus.reproduce import drawing, style
from zeus.reproduce.derived import converged
from zeus.reproduce.expected import Expected
from zeus.reproduce.panel import Number, Panel, Result, rows
from zeus.reproduce.study import Case, Study
from zeus.simulate import regret

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "reference"
WHO = "They say"
TITLE = "The paper's policy beside an independent simulator of it"
RATIO: Final = 0.04  # how far a ratio to Default may be off
REGRET: Final = 0.30  # and a regret, relatively: 20 seeds scatter that much


class Numbers(NamedTuple):
    """Energy and time of the last five recurrences against Default, and the cumulative regret."""

    energy: float
    time: float
    regret: float


def table() -> dict[str, dict[str, Numbers]]:
    """What the other simulator got, by GPU and workload."""
    text = (files(__package__) / "reference.toml").read_text(encoding="utf-8")
    return {gpu: {name: Numbers(*row) for name, row in one.items()} for gpu, one in tomllib.loads(text).items()}


def expected() -> list[Expected]:
    """The same as numbers to compare with."""
    return [
        Expected(
            _id(gpu, name, what),
            f"{name} on {style.GPUS[gpu]}: {_WORDS[what]}",
            value,
            "J" if what == "regret" else "",
            "the other simulator, not the paper",
            REGRET * value if what == "regret" else RATIO,
        )
        for gpu, row in table().items()
        for name, numbers in row.items()
        for what, value in numbers._asdict().items()
    ]


_WORDS: Final = {
    "energy": "energy of the last five recurrences / Default's",
    "time": "time of the last five recurrences / Default's",
    "regret": "cumulative regret",
}


def _id(gpu: str, workload: str, what: str) -> str:
    return f"{NAME}.{gpu}_{workload}_{what}"


def cases(study: Study) -> list[Case]:
    """The paper's policy on every GPU at hand."""
    return [Case(name, gpu=gpu) for gpu in study.workloads for name in study.workloads[gpu]]


def mean(study: Study, case: Case) -> Numbers:
    """Ours, mean over seeds."""
    ratios, least = converged(study, case), regret.optimum(study.workload(case), case.eta)
    total = (study.past(case).cost - least).sum(axis=1)
    return Numbers(float(ratios.energy.mean()), float(ratios.time.mean()), float(total.mean()))


def compute(study: Study) -> Result:
    """Over all seeds."""
    numbers, lines = [], []
    for gpu, row in table().items():
        for name, theirs in row.items():
            if name not in study.workloads.get(gpu, {}):
                why = f"No power trace of the {style.GPUS[gpu]} is at hand."
                numbers += [Number(_id(gpu, name, what), None, note=why) for what in theirs._fields]
                continue
            ours = mean(study, Case(name, gpu=gpu))
            for what, value in ours._asdict().items():
                numbers.append(Number(_id(gpu, name, what), value))
                lines.append((style.GPUS[gpu], name, what, value / getattr(theirs, what)))
    columns = ("gpu", "workload", "quantity", "ours_over_theirs")
    panels = [
        Panel(f"{NAME}_{what}", f"Ours over the other simulator's: {what}", columns,
              rows(line for line in lines if line[2] == what), (6.4, 3.2))
        for what in Numbers._fields
    ]  # fmt: skip
    return Result(tuple(panels), tuple(numbers))


def draw(axes: Axes, panel: Panel) -> None:
    """One bar a GPU and workload; 1 is agreement."""
    drawing.bars(axes, panel, "workload", "gpu", "ours_over_theirs", style.CARDS)
    axes.axhline(1, color=style.BLACK, linewidth=0.8)
    axes.set_ylabel("Ours / theirs")
    drawing.legend_below(axes)
