"""Checks the savings that Zeus reports: a matrix of jobs on virtual cards, each compared with the truth.

    python benchmarks/honesty.py [--quick] [--only TEXT] [--workers 2]

A cell is a job of a few recurrences in a store of its own. It has a way of using Zeus (loader, custom loops, Hugging
Face, Lightning, unmodified scripts, the old routes), a training (epochs to the target, a first epoch that takes five
times as long, evaluation, set-up), and a mode or an event during the job. Only public interfaces are used. Afterwards
the output of `zeus jobs show --json`, `zeus run --json` and the summary of the loader are read.

The truth is what the runs of the same job use with policy "default" and ZEUS_MODE=off, in another store. Virtual cards
are deterministic, so it is exact. In a cell with noise it is the mean of twelve runs. In a cell with run noise, each
run uses a factor more or less, and the mean of that factor is 1. There, a run without this noise is the truth, and the
true default of a recurrence that ran the default batch size has the factor of its own run. In a cell in real time the
truth is the mean of four runs; a busy machine can change it by a few per cent, so 10 % are allowed.

How to read a line:

    default told    what Zeus reports for a run at the default batch size and the highest limit
    true            what such a run uses; with growing data or another GPU, in the latest recurrence
    off             the difference between the two, in joules and in seconds
    saved told      the total saving that Zeus reports
    true            the true default of each converged recurrence, minus everything that was used
    off             the difference between the two, as a share of the sum of these defaults

    ok              all numbers are within 5 %; in a noisy cell, within two reported errors (of 10 % at most)
    covered         in a noisy cell: all numbers are within two reported errors, some of which are above 10 %
    unknown         other numbers are reported as unknown: null, or with the basis "as_it_ran"
    WRONG           a number is wrong; the last column says where, if not in `zeus jobs show`

`±` is the share of noisy cells whose truth lies within one and within two reported errors (`joules_error`).
The exit code is 1 if a cell is wrong or could not be judged.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness import head, row
from honesty_scripts.cells import DEFAULT, Cell, Phase, all_cells
from honesty_scripts.place import CannotRun, Place, WarmStarts, each
from honesty_scripts.ways import Runner, Truths, Used, ledger_error, patiently

NEAR, NEAR_IN_REAL_TIME = 0.05, 0.1
ERRORS, LARGEST = 2, 0.1  # errors that a noisy truth may be off, and the largest error that still counts as a statement
OK, COVERED, UNKNOWN, WRONG, NOT_RUN, FAILED = "ok", "covered", "unknown", "WRONG", "not run", "FAILED"


@dataclass(frozen=True, slots=True)
class Claim:
    """A number that Zeus reports, with the true one."""

    where: str
    told: float | None
    true: float
    scale: float  # what 5 % are taken of
    basis: str | None = None
    error: float | None = None  # as told
    noisy: bool = False
    near: float = NEAR

    @property
    def off(self) -> float | None:
        return None if self.told is None else (self.told - self.true) / self.scale

    @property
    def error_share(self) -> float:
        """The reported error as a share, if there is noise."""
        return (self.error or 0.0) / self.scale if self.noisy else 0.0

    @property
    def verdict(self) -> str:
        if self.off is None:
            return UNKNOWN
        off, error = abs(self.off), self.error_share
        if off <= self.near or (off <= ERRORS * error and error <= LARGEST):
            return OK
        if off <= ERRORS * error:
            return COVERED
        return UNKNOWN if self.basis == "as_it_ran" else WRONG


@dataclass(slots=True)
class Judged:
    """The result of a cell."""

    cell: Cell
    claims: dict[str, Claim] = field(default_factory=dict)
    ledger_error: float = 0.0
    seconds: float = 0.0
    note: str = ""
    failed: str = ""

    @property
    def verdict(self) -> str:
        if self.failed:
            return self.failed
        found = {claim.verdict for claim in self.claims.values()}
        return next((verdict for verdict in (WRONG, UNKNOWN, COVERED) if verdict in found), OK)

    @property
    def worst(self) -> float:
        told_as_known = (one for one in self.claims.values() if one.verdict != UNKNOWN)
        return max((abs(claim.off) for claim in told_as_known if claim.off is not None), default=0.0)


# ---------------------------------------------------------------------------------------------------- judging


class Judge:
    """Runs cells and compares their numbers with the truth."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._warm = WarmStarts()
        self._truths = Truths(folder, self._warm)

    def judge(self, cell: Cell) -> Judged:
        begin, judged = time.monotonic(), Judged(cell)
        try:
            patiently(lambda wait: self._look(judged, wait), cell)
        except CannotRun as missing:
            judged.failed, judged.note = NOT_RUN, str(missing)
        except Exception as failed:  # the other cells go on
            judged.failed, judged.note = FAILED, f"{type(failed).__name__}: {failed}"
        judged.seconds = time.monotonic() - begin
        return judged

    def _look(self, judged: Judged, wait: float) -> tuple[None, float]:
        cell = judged.cell
        place = Place(self._folder / f"cell-{abs(hash(cell)):x}-{wait:g}", self._warm)
        runner = Runner(place, cell, wait=wait)
        converged: dict[int, Phase] = {}  # the phase of each recurrence that counts
        for phase in cell.course:
            if phase.before == "reset":
                converged = {}
            recurrences = runner.run(phase)
            converged |= {number: phase for number, reached in recurrences.items() if reached}
        show, factors = place.show(), run_factors(place)
        claims = self._claims(cell, converged, show, runner.reports, factors)
        if cell.way == "loader":
            claims |= self._summary_claims(cell, place.lines("summary.jsonl")[-1], list(factors.values())[-1])
        kind = {"noisy": cell.is_noisy, "near": NEAR_IN_REAL_TIME if cell.speed else NEAR}
        judged.claims = {what: replace(claim, **kind) for what, claim in claims.items()}
        judged.ledger_error = ledger_error(place, show)
        return None, judged.ledger_error

    def _claims(
        self,
        cell: Cell,
        converged: Mapping[int, Phase],
        show: dict[str, Any],
        reports: Sequence[dict[str, Any]],
        factors: Mapping[int, float],
    ) -> dict[str, Claim]:
        true = self._truths.of(cell, cell.course[-1])
        claims = {f"default {what}": claim for what, claim in default_claims("show", show["default"], true).items()}
        own = {one["recurrence"]: factors.get(one["number"], 1.0) for one in show["tries"] if is_default_run(one)}
        in_all = sum(self._truths.of(cell, phase).joules * own.get(number, 1.0) for number, phase in converged.items())
        saving = show["saving"] or {}
        claims["saved joules"] = Claim(
            "show",
            saving.get("joules"),
            in_all - show["joules"],
            in_all or true.joules,
            saving.get("basis") or (show["default"] or {}).get("basis"),
            saving.get("joules_error"),
        )
        told = reports[-1]["saving"] if reports else None
        if told is not None and told.get("default_joules") is not None:  # `zeus run` must not say anything else
            default = {what: told.get(f"default_{what}") for what in ("joules", "seconds")}
            default |= {name: (show["default"] or {}).get(name) for name in ("basis", "joules_error", "seconds_error")}
            claims |= {f"run {what}": claim for what, claim in default_claims("zeus run", default, true).items()}
        return claims

    def _summary_claims(self, cell: Cell, summary: dict[str, Any], factor: float) -> dict[str, Claim]:
        """Claims of the loader's summary: the saving of this run by its limit, and the default if it reports one."""
        claims, phase, size = dict[str, Claim](), cell.course[-1], summary["batch_size"]
        if summary.get("default") is not None:
            found = default_claims("loader", summary["default"], self._truths.of(cell, phase))
            claims |= {f"loader {what}": claim for what, claim in found.items()}
        saving = summary["saving"]
        if saving is None or "from_watts" not in saving:
            return claims
        at_first = self._truths.of(cell, phase, size, saving["from_watts"]).joules * factor
        used = summary["joules"]
        if cell.mode != "optimize":  # what it would have saved
            used = self._truths.of(cell, phase, size, saving["to_watts"]).joules * factor
        if summary["ending"] == "reached":
            true = at_first - used
            error = saving.get("joules_error")
            claims["loader saved"] = Claim("loader", saving["joules"], true, at_first, error=error)
        return claims


def is_default_run(one: Mapping[str, Any]) -> bool:
    return bool(one["ending"] == "converged" and one["batch_size"] == DEFAULT)


def run_factors(place: Place) -> dict[int, float]:
    """How much more each run used than such runs do in the mean, by trial."""
    return {int(mark["trial"] or 0): mark["factor"] for mark in place.lines("ledger.jsonl")}


def default_claims(where: str, default: dict[str, Any] | None, true: Used) -> dict[str, Claim]:
    told = default or {}
    return {
        what: Claim(where, told.get(what), number, number, told.get("basis"), told.get(f"{what}_error"))
        for what, number in (("joules", true.joules), ("seconds", true.seconds))
    }


# ---------------------------------------------------------------------------------------------------- what is said

HEAD = head(*("cell", "default told", "true", "off J", "off s", "saved told", "true", "off", "basis", "verdict", ""))


def line(judged: Judged) -> str:
    name, note = judged.cell.name, judged.note.replace("|", "/").replace("\n", " ")[:200]
    if judged.failed:
        return row(name, *[""] * 8, judged.failed, note)
    joules, seconds, saved = (judged.claims[what] for what in ("default joules", "default seconds", "saved joules"))
    told = "–" if joules.told is None else f"{joules.told:.0f} J, {seconds.told or 0:.1f} s"
    elsewhere = [f"{what} {percent(one.off)}" for what, one in judged.claims.items() if one.where != "show"]
    wrong = [text for text, one in zip(elsewhere, not_shown(judged), strict=True) if one.verdict == WRONG]
    ledger = [f"measured {judged.ledger_error:.1%} off"] if judged.ledger_error > 0.01 and not judged.cell.speed else []
    true = f"{joules.true:.0f} J, {seconds.true:.1f} s"
    default = [told, true, percent(joules.off), percent(seconds.off)]
    saving = [number(saved.told), number(saved.true), percent(saved.off)]
    return row(name, *default, *saving, joules.basis or "", judged.verdict, "; ".join(wrong + ledger))


def not_shown(judged: Judged) -> list[Claim]:
    return [claim for claim in judged.claims.values() if claim.where != "show"]


def percent(share: float | None) -> str:
    return "–" if share is None else f"{share:+.1%}"


def number(joules: float | None) -> str:
    return "–" if joules is None else f"{joules:.0f} J"


def summary(all_judged: Sequence[Judged]) -> str:
    found = Counter(one.verdict for one in all_judged)
    worst = max(all_judged, key=lambda one: one.worst)
    more = "".join(f", {found[what]} {what}" for what in (NOT_RUN, FAILED) if found[what])
    text = (
        f"{len(all_judged)} cells: {found[OK]} within 5 %, {found[COVERED]} within a large error told, "
        f"{found[UNKNOWN]} not known, {found[WRONG]} wrong{more}; "
        f"worst {worst.worst:.1%} off ({worst.cell.name})."
    )
    return "\n\n".join([text, by_way(all_judged), coverage(all_judged)])


def by_way(all_judged: Sequence[Judged]) -> str:
    lines = [head("way", "cells", "within 5 %", "covered", "not known", "wrong", "worst")]
    for way in dict.fromkeys(one.cell.way for one in all_judged):
        mine = [one for one in all_judged if one.cell.way == way]
        found, worst = Counter(one.verdict for one in mine), max(one.worst for one in mine)
        counts = (str(found[what]) for what in (OK, COVERED, UNKNOWN, WRONG))
        lines.append(row(way, str(len(mine)), *counts, f"{worst:.1%}"))
    return "\n".join(lines)


def coverage(all_judged: Sequence[Judged]) -> str:
    """How often the truth lies within the reported errors, in noisy cells."""
    lines = []
    for what in ("default joules", "default seconds", "saved joules", "loader saved"):
        noisy = (one for one in all_judged if one.cell.is_noisy and not one.failed)
        claims = [one.claims[what] for one in noisy if what in one.claims]
        ratios = [abs(c.told - c.true) / c.error for c in claims if c.told is not None and c.error]
        if ratios:
            once, twice = (sum(ratio <= limit for ratio in ratios) / len(ratios) for limit in (1, 2))
            relative = statistics.mean(c.error / c.scale for c in claims if c.error)
            lines.append(
                f"± {what}: the truth lies within one error in {once:.0%} and within two in {twice:.0%} of "
                f"{len(ratios)} noisy cells (error told: {relative:.1%} on average)"
            )
        elif claims:
            lines.append(f"± {what}: no error is told in any of {len(claims)} noisy cells")
    return "\n".join(lines)


def chosen(options: argparse.Namespace) -> list[Cell]:
    cells = [cell for cell in all_cells() if cell.quick or not options.quick]
    return [cell for cell in cells if not options.only or options.only in cell.name]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about a dozen cells")
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose name has this in it")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="cells at a time")
    options = parser.parse_args()
    cells = chosen(options)
    begin, done = time.monotonic(), []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="honesty-") as folder:
        for judged in each(Judge(Path(folder)).judge, cells, options.workers):
            done.append(judged)
            print(line(judged), flush=True)
    print(f"\n{summary(done)}\n\n{time.monotonic() - begin:.0f} s; default batch size {DEFAULT}", flush=True)
    return int(any(one.verdict in (WRONG, FAILED) for one in done))


if __name__ == "__main__":
    sys.exit(main())
