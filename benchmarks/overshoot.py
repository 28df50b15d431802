"""Measures how far a trial exceeds its cost limit when a new batch size turns out to be far too expensive.

    python benchmarks/overshoot.py [--only TEXT] [--workers 2]

Each line is a job on a virtual card, with the paper's policy and beta = 2, for one way of using Zeus. The default
converges first. Then comes a size whose single epoch costs 10 or 20 times a whole run of the default. It should be
stopped within its first epoch, as soon as its steps show the cost. All ways run on a virtual clock, except unmodified
scripts: what those use between two lines can only be seen in (fast) real time.

    evaluation  what an evaluation costs, as a share of an epoch of the default
    epoch       cost of one epoch of that size, measured separately, in runs of the default
    bound       cost limit of the trial, in runs of the default
    cost        cost until it was stopped, in runs of the default
    overshoot   (cost - bound) / epoch: 0 if it stops in time, 1 if it stops a whole epoch too late

All are costs of Equation 2, as in `zeus jobs show --json`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import head, row
from honesty_scripts.cells import BESIDE, DEFAULT, WAYS, Cell, Phase
from honesty_scripts.place import CannotRun, Place, WarmStarts, each
from honesty_scripts.ways import Runner

LARGE = 16  # the batch size whose epochs are long
TIMES = (10, 20)  # the cost of one of its epochs, in runs of the default
EVALUATIONS = (0.0, 0.5)  # after each epoch, as a share of an epoch of the default
SPEED = 40
SEEN = {
    "loader": "steps",
    "own": "steps",
    "own evaluations": "evaluations",
    "own+limits": "steps",
    "own alone": "steps",
    "huggingface": "steps",
    "lightning": "steps",
    "lines begin": "lines",
    "lines end": "lines",
    "lines file": "lines",
    "old routes": "epochs",
}


@dataclass(frozen=True, slots=True)
class Passed:
    """The result for the size that costs too much."""

    way: str
    times: int
    evaluation: float
    default: float = 0.0  # cost of a run
    epoch: float = 0.0  # cost of one of the long epochs
    bound: float | None = None
    cost: float | None = None
    ending: str = ""

    @property
    def overshoot(self) -> float | None:
        return None if self.bound is None or self.cost is None else max(0.0, self.cost - self.bound) / self.epoch


class LongEpochs(Runner):
    """A training in which one size has long epochs. `needed` is the number of epochs to the target."""

    def __init__(self, place: Place, cell: Cell, times: int, needed: int, default: int = DEFAULT) -> None:
        super().__init__(place, cell, default=default)
        self._times, self._needed = times, needed

    def _toy(self, phase: Phase) -> dict[str, Any]:
        told = super()._toy(phase)
        needed = {**told["needed"], LARGE: self._needed}
        samples = 0.87 * self._times * self.cell.epochs  # as a multiple; a sample of a small batch costs more
        return {**told, "needed": needed, "longer": {LARGE: samples}}


def look(folder: Path, warm: WarmStarts, way: str, times: int, evaluation: float) -> Passed:
    speed = SPEED if way.startswith("lines") else 0
    cell = Cell(way, 2, evaluation=evaluation, policy="paper", speed=speed)
    alone = Cell(way, 2, evaluation=evaluation, mode="off", policy="default", speed=speed)
    epoch = cost_of_an_epoch(folder, warm, alone, times)
    place = Place(folder / f"{way}-{times}-{evaluation}".replace(" ", "-"), warm)
    LongEpochs(place, cell, times, needed=99).run(Phase(3))
    tries = place.show()["tries"]
    default = next(one["cost"] for one in tries if one["ending"] == "converged")
    bounded = [one for one in tries if one["batch_size"] == LARGE and one["cost_limit"] is not None and one["cost"]]
    if not bounded:
        return Passed(way, times, evaluation, default, epoch, ending="never tried under a bound")
    worst = max(bounded, key=lambda one: float(one["cost"] - one["cost_limit"]))
    return Passed(way, times, evaluation, default, epoch, worst["cost_limit"], worst["cost"], worst["ending"])


def cost_of_an_epoch(folder: Path, warm: WarmStarts, cell: Cell, times: int) -> float:
    """Measured by a job of that size alone, with one epoch."""
    place = Place(folder / f"epoch-{cell.way}-{times}-{cell.evaluation}".replace(" ", "-"), warm)
    LongEpochs(place, cell, times, needed=1, default=LARGE).run(Phase(1))
    (one,) = place.show()["tries"]
    return float(one["cost"])


# ---------------------------------------------------------------------------------------------------- what is said


def line(one: Passed) -> str:
    if one.overshoot is None or one.bound is None or one.cost is None:
        return row(one.way, SEEN[one.way], f"{one.evaluation:.0%}", *[""] * 4, one.ending)
    runs = (f"{cost / one.default:.2f}" for cost in (one.epoch, one.bound, one.cost))
    return row(one.way, SEEN[one.way], f"{one.evaluation:.0%}", *runs, f"{one.overshoot:.3f}", one.ending)


def summary(done: list[Passed]) -> str:
    found = [one.overshoot for one in done if one.overshoot is not None]
    small = sum(overshoot <= 0.05 for overshoot in found)
    return (
        f"{len(done)} lines: {small} within 0.05 of an epoch, worst {max(found, default=0.0):.2f} epochs; "
        f"{len(done) - len(found)} without a stopped trial."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="TEXT", help="ways whose name has this in it")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="jobs at a time")
    options = parser.parse_args()
    wanted = [
        (way, times, share)
        for way in (*WAYS, *BESIDE)
        if options.only in way
        for times in TIMES
        for share in EVALUATIONS
    ]
    print(head("way", "sees", "evaluation", "epoch", "bound", "cost", "overshoot", "ending"), flush=True)
    warm, done = WarmStarts(), []
    with tempfile.TemporaryDirectory(prefix="overshoot-") as folder:

        def one(what: tuple[str, int, float]) -> Passed:
            try:
                return look(Path(folder), warm, *what)
            except CannotRun as missing:
                return Passed(*what, ending=f"not run: {missing}")
            except Exception as failed:  # the others go on
                return Passed(*what, ending=f"failed: {failed}".replace("\n", " ")[:200])

        for passed in each(one, wanted, options.workers):
            done.append(passed)
            print(line(passed), flush=True)
    print(f"\n{summary(done)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
