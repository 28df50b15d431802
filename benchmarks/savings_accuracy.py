"""Measures how accurate the savings are that Zeus reports, on drawn job histories whose truth is known.

    python benchmarks/savings_accuracy.py [--seeds 1200] [--first 1] [--seed 1] [--only CLASS]

A history is a job of 3 to 40 recurrences (benchmarks/savings_scripts). Batch sizes differ in the epochs they need and
in what an epoch uses. Runs differ by luck and noise, processes warm up, data grow, power limits are tuned, trials crash
or are lost. All histories are imported with `zeus jobs import`, and `zeus jobs show --json` is compared with the truth.
The same seed draws the same histories, whatever Zeus reports about them.

The true default of a recurrence is the mean use of runs of the default batch size at the highest power limit, with the
data, the GPUs and the day of that recurrence. A recurrence that converged with the default size is compared with its
own run at the highest limit. The true saving is the sum of these defaults over the recurrences that converged, minus
all that was used. Recurrences that Zeus compares with nothing are left out on both sides.

How to read a row, each time for energy (J) and time (s):

    bias, rms       mean and root mean square of the difference between the reported and the true saving, as a share of
                    the true defaults
    within 2        histories whose truth lies within two reported errors
    error           mean reported error, as a share of the true defaults
    wrong sign      histories where a saving is reported (of two errors or more) but the opposite is true
    none            histories for which no saving is reported

The last columns are the same for the default that is reported for the latest data.

Rows below "all" are not part of it. Nobody can know how far the data jumped if no batch size ran before and after the
jump, unless steps are counted. Nothing is claimed for power limits if the basis is "as_it_ran". In the last row, the
noise that lasts over days counts as noise, so that the true default is the mean over all days.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))

from savings_scripts.exports import job_id, lines
from savings_scripts.histories import History, draw_history
from savings_scripts.worlds import JUMP, NONE, STEPS, TOTALS, TREND, UNEVEN, WATCHED, Pair, World, draw_world
from zeus.cli.main import zeus

QUANTITIES = ("joules", "seconds")
SEEN = 2.0  # reported errors from which a difference counts
ROUNDING = 1e-6  # of the true defaults
AS_IT_RAN = "as_it_ran"


# ---------------------------------------------------------------------------------------------------- judging


@dataclass(frozen=True, slots=True)
class Estimate:
    """A reported pair of numbers with the true one."""

    told: Pair
    error: Pair
    true: Pair
    scale: Pair  # the true defaults

    @property
    def off(self) -> Pair:
        return (self.told - self.true) / self.scale

    @property
    def within(self) -> Any:
        """Whether the truth lies within two errors."""
        return np.abs(self.told - self.true) <= SEEN * self.error + ROUNDING * self.scale

    @property
    def wrong_sign(self) -> Any:
        claimed = (np.abs(self.told) >= SEEN * self.error) & (np.abs(self.told) > ROUNDING * self.scale)
        return claimed & (self.told * self.true < 0)


@dataclass(frozen=True, slots=True)
class Judged:
    """One history, with what Zeus reports about it."""

    history: History
    basis: str | None
    saving: Estimate | None
    averaged: Estimate | None  # the saving, against the mean over all days
    default: Estimate | None

    @property
    def world(self) -> World:
        return self.history.world

    @property
    def possible(self) -> bool:
        return not self.history.unbridged and not self.as_it_ran

    @property
    def as_it_ran(self) -> bool:
        return self.world.tuned and (self.world.way == TOTALS or self.basis == AS_IT_RAN)


def draw(seed: int, count: int, first: int = 1) -> Iterator[History]:
    """Histories, each with randomness of its own."""
    for number in range(first, first + count):
        rng = np.random.default_rng([seed, number])
        yield draw_history(draw_world(rng, number), rng)


def judge(histories: Sequence[History]) -> Iterator[Judged]:
    """Import the histories into a new store, and compare what is shown with the truth."""
    with tempfile.TemporaryDirectory(prefix="savings-") as folder:
        file, store = Path(folder) / "jobs.jsonl", f"sqlite:///{folder}/zeus.db"
        file.write_text("".join(f"{line}\n" for line in lines(histories)))
        call("jobs", "import", str(file), "--store", store)
        for history in histories:
            shown = json.loads(call("jobs", "show", job_id(history.world), "--json", "--store", store))
            yield compare(history, shown)


def call(*arguments: str) -> str:
    """The output of a `zeus` command."""
    done = CliRunner().invoke(zeus, arguments)
    if done.exit_code:
        raise RuntimeError(f"zeus {' '.join(arguments)}: {done.output}") from done.exception
    return done.stdout


def compare(history: History, shown: dict[str, Any]) -> Judged:
    saving, default = shown["saving"], shown["default"]
    last = history.world.recurrences
    true = history.world.expected_default(last)
    return Judged(
        history,
        None if saving is None else saving["basis"],
        None if saving is None else estimate_of(saving, *true_saving(history, shown["history"], on_that_day=True)),
        None if saving is None else estimate_of(saving, *true_saving(history, shown["history"], on_that_day=False)),
        None if default is None else estimate_of(default, true, true),
    )


def estimate_of(shown: dict[str, Any], true: Pair, scale: Pair) -> Estimate:
    told, errors = ([float(shown[f"{name}{end}"] or 0) for name in QUANTITIES] for end in ("", "_error"))
    return Estimate(np.array(told), np.array(errors), true, scale)


def true_saving(history: History, rows: Iterable[dict[str, Any]], *, on_that_day: bool) -> tuple[Pair, Pair]:
    """The saving of the recurrences that Zeus compares, and the sum of their defaults."""
    used, defaults = np.zeros(2), np.zeros(2)
    for row in rows:
        if row["joules"] is None or row["default_joules"] is None:
            continue
        number = row["number"]
        used += history.used(number)
        if row["end"] == "converged":
            defaults += history.true_default(number, on_that_day=on_that_day)
    return defaults - used, defaults


# ---------------------------------------------------------------------------------------------------- the table


def is_plain(one: World) -> bool:
    quiet = one.growth == NONE and not one.lasting and one.noise[1] < 0.1 and one.luck < 0.15
    return quiet and not one.tuned and not one.moves_at


CLASSES: dict[str, Callable[[World], bool]] = {
    "plain": is_plain,
    "noise >= 10 %": lambda one: one.noise[1] >= 0.1,
    "luck >= 15 %": lambda one: one.luck >= 0.15,
    "trend": lambda one: one.growth == TREND,
    "uneven": lambda one: one.growth == UNEVEN,
    "jump": lambda one: one.growth == JUMP,
    "days": lambda one: one.lasting,
    "tuned limits": lambda one: one.tuned,
    "watched": lambda one: one.way == WATCHED,
    "steps": lambda one: one.way == STEPS,
    "totals only": lambda one: one.way == TOTALS,
    "two GPUs": lambda one: bool(one.moves_at),
    "few (< 6)": lambda one: one.recurrences < 6,
    "many (>= 20)": lambda one: one.recurrences >= 20,
}
HEAD = (
    *("class", "histories", "bias J", "bias s", "rms J", "rms s", "within 2 J", "within 2 s", "error J", "error s"),
    *("wrong sign J", "wrong sign s", "none", "default rms J", "default rms s", "within 2 J", "within 2 s"),
)


def rows(judged: Sequence[Judged]) -> Iterator[tuple[str, list[Judged], list[Estimate]]]:
    """The classes, with their histories and the savings reported for them."""
    possible = [one for one in judged if one.possible]
    for name, belongs in CLASSES.items():
        mine = [one for one in possible if belongs(one.world)]
        yield name, mine, savings(mine)
    yield "all", possible, savings(possible)
    unbridged = [one for one in judged if one.history.unbridged]
    yield "jump, not seen", unbridged, savings(unbridged)
    as_it_ran = [one for one in judged if one.as_it_ran and not one.history.unbridged]
    yield "tuned, as it ran", as_it_ran, savings(as_it_ran)
    lasting = [one for one in possible if one.world.lasting]
    yield "days, averaged", lasting, [one.averaged for one in lasting if one.averaged is not None]


def savings(judged: Iterable[Judged]) -> list[Estimate]:
    return [one.saving for one in judged if one.saving is not None]


def table(judged: Sequence[Judged], digits: int = 1) -> str:
    body = [[name, str(len(mine)), *columns(mine, told, digits)] for name, mine, told in rows(judged)]
    widths = [max(len(line[place]) for line in [HEAD, *body]) for place in range(len(HEAD))]
    text = [[one.ljust(width) for one, width in zip(line, widths, strict=True)] for line in [HEAD, *body]]
    text.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(line)} |" for line in text)


def columns(mine: Sequence[Judged], told: Sequence[Estimate], digits: int) -> list[str]:
    saving, default = summary(told), summary([one.default for one in mine if one.default is not None])
    some = [number for name in ("bias", "rms", "within", "error", "wrong") for number in saving[name]]
    beside = [number for name in ("rms", "within") for number in default[name]]
    count = str(len(mine) - len(told))
    return [*(percent(one, digits) for one in some), count, *(percent(one, digits) for one in beside)]


def summary(told: Sequence[Estimate]) -> dict[str, Pair]:
    """What the columns show, for joules and seconds."""
    if not told:
        return dict.fromkeys(("bias", "rms", "within", "error", "wrong"), np.full(2, math.nan))
    off = np.array([one.off for one in told])
    return {
        "bias": off.mean(axis=0),
        "rms": np.sqrt((off**2).mean(axis=0)),
        "within": np.mean([one.within for one in told], axis=0),
        "error": np.mean([one.error / one.scale for one in told], axis=0),
        "wrong": np.mean([one.wrong_sign for one in told], axis=0),
    }


def percent(share: float, digits: int) -> str:
    return "–" if math.isnan(share) else f"{round(100 * share, digits) + 0.0:.{digits}f}%"  # + 0.0: no minus zero


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", "--histories", dest="histories", type=int, default=1200, help="histories to draw")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="number of the first history")
    parser.add_argument("--seed", type=int, default=1, help="seed of the histories")
    parser.add_argument("--only", choices=CLASSES, metavar="CLASS", help="only the drawn histories of this class")
    parser.add_argument("--digits", type=int, default=1, metavar="N", help="digits after the point of a percentage")
    options = parser.parse_args()
    drawn = draw(options.seed, options.histories, options.first)
    judged = list(judge([one for one in drawn if options.only is None or CLASSES[options.only](one.world)]))
    print(f"{len(judged)} histories, seed {options.seed}\n\n{table(judged, options.digits)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
