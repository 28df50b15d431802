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
RUN_NOISES = (0.05, 0.1, 0.2)


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
    work: int = 1  # how often each step is done
    run_noise: float = 0.0  # relative deviation of what all steps of a run use; needs `work` of 2
    idle_warm: int = 1  # how many times as long the first epoch takes, waiting
    idle_once: int = 0  # how many epochs long the first step waits
    counted: bool = True  # whether a script that writes lines says how many samples an epoch has
    seed: int = 0
    speed: int = 0  # 0: on a virtual clock
    quick: bool = False

    @property
    def name(self) -> str:
        words = [f"{self.way}, {self.epochs} ep"]
        words += [f"warm-up x{self.warm}"] if self.warm > 1 else []
        words += [f"idle warm-up x{self.idle_warm}"] if self.idle_warm > 1 else []
        words += ["first step waits"] if self.idle_once else []
        words += [f"evaluation {self.evaluation:.0%}"] if self.evaluation else []
        words += [f"set-up {self.set_up:g} s"] if self.set_up else []
        words += [self.mode] if self.mode != "optimize" else []
        words += [f"noise, seed {self.seed}"] if self.noise else []
        words += [f"run noise {self.run_noise:.0%}, seed {self.seed}"] if self.run_noise else []
        return ", ".join(words + ([self.special] if self.special else []))

    @property
    def is_noisy(self) -> bool:
        """Whether the truth cannot be known exactly: runs differ, or data grow and nothing says so."""
        return self.noise > 0 or self.run_noise > 0 or not self.counted

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
    grown = growing()
    ways = ("lines begin", "lines end")
    cells += [Cell(way, special="data grow 5 %, samples not told", phases=grown, counted=False) for way in ways]
    cells += [Cell(way, special="in real time", speed=8, phases=(Phase(5),)) for way in ("lines begin", "lines end")]
    return cells


def noisy() -> list[Cell]:
    """Runs that differ by a few per cent, to see whether the error told covers them."""
    ways = ("loader", "own+limits", "lines begin", "lines end")
    return [Cell(way, noise=NOISE, seed=seed) for way in ways for seed in range(1, 5)]


def run_noisy() -> list[Cell]:
    """Whole runs that differ, as on a shared machine. Each cell has a seed of its own, so that it has its own luck."""
    ways = ("loader", "own+limits", "lines begin", "lines end", "huggingface")
    twice = [(way, noise) for way in ways for noise in RUN_NOISES for _ in range(2)]
    return [Cell(way, work=2, run_noise=noise, seed=seed) for seed, (way, noise) in enumerate(twice, 1)]


def waiting() -> list[Cell]:
    """A first epoch that waits, as for data that are loaded or kernels that are compiled."""
    ways = ("loader", "own+limits", "huggingface", "lightning", "lines begin", "lines end")
    cells = [Cell(way, epochs, idle_warm=5) for way in ways for epochs in (1, 3, MANY)]
    return cells + [Cell(way, epochs, idle_once=4) for way in ways for epochs in (1, 2, MANY)]


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
    cells = matrix() + specials() + noisy() + run_noisy() + waiting()
    return [replace(cell, quick=cell.name in QUICK) for cell in cells]
