"""The cells of the matrix: ways of using Zeus, kinds of training, modes, and what may happen to a job meanwhile."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

WAYS = (
    "loader",
    "own",
    "own+limits",
    "huggingface",
    "lightning",
    "lines begin",
    "lines end",
    "lines file",
    "old routes",
)
BESIDE = ("own evaluations", "own alone")  # further ways, with fewer cells
SIZES, DEFAULT = (16, 32, 64), 32
MANY = 10  # epochs that are many
NOISE = 0.05


@dataclass(frozen=True, slots=True)
class Phase:
    """Some recurrences of a job under one state of the world."""

    recurrences: int
    growth: float = 1.0
    eta: float = 0.5
    card: str = "v100"
    before: str = ""  # "reset"
    ended: str = ""  # "kill" or "interrupt": the run is ended so in the middle of its first recurrence


@dataclass(frozen=True, slots=True)
class Cell:
    """A job that is run, and what Zeus tells of it afterwards."""

    way: str
    epochs: int = 3
    warm: int = 1
    evaluation: float = 0.0
    set_up: float = 0.0
    mode: str = "optimize"
    special: str = ""
    phases: tuple[Phase, ...] = ()
    policy: str = "structured"
    never: int = 0  # a size that does not converge
    crash: int = 0  # a size that fails
    noise: float = 0.0
    seed: int = 0
    speed: int = 0  # 0: on a virtual clock
    quick: bool = False

    @property
    def name(self) -> str:
        words = [f"{self.way}, {self.epochs} ep"]
        words += [f"warm-up x{self.warm}"] if self.warm > 1 else []
        words += [f"evaluation {self.evaluation:.0%}"] if self.evaluation else []
        words += [f"set-up {self.set_up:g} s"] if self.set_up else []
        words += [self.mode] if self.mode != "optimize" else []
        words += [f"noise, seed {self.seed}"] if self.noise else []
        return ", ".join(words + ([self.special] if self.special else []))

    def needed(self, size: int) -> int:
        """Epochs to the target: the default's, except for a large batch, which needs some more."""
        if size == self.never:
            return 99
        return self.epochs + math.ceil(self.epochs / 3) if size == max(SIZES) else self.epochs

    @property
    def max_epochs(self) -> int:
        return max(self.epochs + 4, 2 * self.epochs)

    @property
    def samples(self) -> int:
        """Of a data set; a framework's own steps take real time, so that it gets fewer."""
        return 1600 if self.way in ("huggingface", "lightning") else 3200

    @property
    def course(self) -> tuple[Phase, ...]:
        return self.phases or (Phase(8 if self.epochs == 1 else 6),)


def matrix() -> list[Cell]:
    """Every value of every dimension with every way."""
    cells = [Cell(way, *values) for way in WAYS for values in PLAIN]
    cells += [Cell(way, *values) for way in BESIDE for values in PLAIN[2:6]]
    return cells


EVERYTHING = (5, 0.5, 5.0)  # warm-up, evaluation and set-up at once
PLAIN: tuple[tuple[object, ...], ...] = (
    (1,),
    (2,),
    (3,),
    (MANY,),
    (3, 5),
    (3, 1, 0.5),
    (3, 1, 0.0, 5.0),
    (3, 1, 0.0, 0.0, "observe"),
    (3, 1, 0.0, 0.0, "off"),
    (1, *EVERYTHING),
    (MANY, *EVERYTHING),
    (2, 5, 0.5, 0.0, "observe"),
    (2, *EVERYTHING, "off"),
)


def growing(each: int = 6) -> tuple[Phase, ...]:
    return tuple(Phase(1, growth=1.05**number) for number in range(each))


def specials() -> list[Cell]:
    """What happens to jobs."""
    cells = []
    for way in ("loader", "own+limits", "lines end"):
        cells += [
            Cell(way, special="data grow 5 %", phases=growing()),
            Cell(way, special="eta 0.5 then 1", phases=(Phase(3), Phase(3, eta=1.0))),
            Cell(way, special="V100 then A40", phases=(Phase(4), Phase(4, card="a40"))),
            Cell(way, special="a size never converges", never=16),
            Cell(way, special="a size crashes", crash=16),
            Cell(way, special="reset in the middle", phases=(Phase(3), Phase(4, before="reset"))),
            Cell(way, special="kill -9", phases=(Phase(3), Phase(1, ended="kill"), Phase(3))),
            Cell(way, special="interrupted", phases=(Phase(3), Phase(1, ended="interrupt"), Phase(3))),
            Cell(way, special="paper's policy", policy="paper"),
        ]
    cells += [Cell(way, special="in real time", speed=8, phases=(Phase(5),)) for way in ("lines begin", "lines end")]
    return cells


def noisy() -> list[Cell]:
    """Runs that differ by a few per cent, to see whether the error told covers them."""
    ways = ("loader", "own+limits", "lines begin", "lines end")
    return [Cell(way, noise=NOISE, seed=seed) for way in ways for seed in range(1, 5)]


QUICK = {
    "loader, 1 ep",
    "loader, 3 ep, warm-up x5",
    "loader, 3 ep, data grow 5 %",
    "own, 3 ep",
    "own+limits, 3 ep",
    "own+limits, 3 ep, evaluation 50%",
    "lines begin, 2 ep",
    "lines end, 3 ep, warm-up x5",
    "lines file, 3 ep, set-up 5 s",
    "lines end, 3 ep, a size never converges",
    "old routes, 3 ep",
    "own evaluations, 3 ep, warm-up x5",
}


def all_cells() -> list[Cell]:
    cells = matrix() + specials() + noisy()
    return [replace(cell, quick=cell.name in QUICK) for cell in cells]
