"""How each way of using Zeus runs the recurrences of a cell, and what a run at the default really uses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from honesty_scripts.cells import DEFAULT, SIZES, Cell, Phase
from honesty_scripts.place import Failed, Place, WarmStarts

TARGET = 0.9
MEAN_OF = 12  # runs that make a noisy truth
REAL_TIME_MEAN_OF = 4
SCRIPTS = {"loader": "train_loader", "huggingface": "train_huggingface", "lightning": "train_lightning"}
OWN = {"own": "all", "own+limits": "limits", "own evaluations": "evaluations"}
METRICS = {
    "begin": r"regex = 'acc=(\S+)'" + "\n" + r"epoch_regex = 'epoch (\d+) of'",
    "end": r"regex = 'acc=(\S+)'" + "\n" + r"epoch_regex = 'epoch (\d+) done'",
    "file": 'file = "metrics.jsonl"',
}
SAMPLES = "\n" + r"samples = 'samples=(\d+)'"
Recurrences = dict[int, bool]  # by number: whether it converged


@dataclass(frozen=True, slots=True)
class Used:
    """Energy and time of a run."""

    joules: float
    seconds: float


class Runner:
    """Runs one cell in one place; `default` is what its job calls the default size."""

    def __init__(self, place: Place, cell: Cell, *, default: int = DEFAULT, wait: float = 0.12) -> None:
        self.place, self.cell, self.default = place, cell, default
        self.place.env |= {"ZEUS_MODE": cell.mode, "WAIT": str(wait)}
        self.reports: list[dict[str, Any]] = []  # of `zeus run --json`

    def run(self, phase: Phase, limit: float | None = None) -> Recurrences:
        """The recurrences of a phase."""
        place = self.place
        pace = f"speed={self.cell.speed}&watched=idle" if self.cell.speed else "clock=virtual"
        place.use_card(f"{phase.card}?{pace}", limit)
        place.env["TOY"] = json.dumps(self._toy(phase))
        if phase.before == "reset":
            place.zeus("jobs", "reset", "toy", "--yes")
        if self.cell.way == "old routes":
            return self._old_routes(phase)
        if self.cell.way == "own alone":
            return self._alone(phase)
        return self._launched(phase)

    def _toy(self, phase: Phase) -> dict[str, Any]:
        cell = self.cell
        names = ("samples", "counted", "warm", "idle_warm", "idle_once", "evaluation", "set_up", "crash")
        told = {name: getattr(cell, name) for name in (*names, "noise", "work", "run_noise")}
        needed = {size: cell.needed(size) for size in SIZES}
        return {**told, "growth": phase.growth, "needed": needed, "seed": cell.seed, "pause": 0.0}

    def _launched(self, phase: Phase) -> Recurrences:
        cell, place = self.cell, self.place
        values = {
            "batch_sizes": SIZES,
            "default_batch_size": self.default,
            "target_metric": TARGET,
            "max_epochs": cell.max_epochs,
            "eta": phase.eta,
            "policy": cell.policy,
            "mab_seed": cell.seed,
        }
        if cell.way.startswith("lines"):
            style = cell.way.split()[1]
            metrics = METRICS[style] + (SAMPLES if cell.counted and style != "file" else "")
            place.write_job("train_lines", f"{style} {{batch_size}} {{epochs}}", metrics, **values)
        elif cell.way in OWN:
            place.write_job("train_own", OWN[cell.way], **values)
        else:
            place.write_job(SCRIPTS[cell.way], "{batch_size}", **values)
        if phase.ended:
            place.run_and_end(phase.ended)
            return {}
        self.reports.append(place.run(phase.recurrences))
        return {one["recurrence"]: one["converged"] for one in self.reports[-1]["recurrences"]}

    def _spec(self, phase: Phase) -> dict[str, Any]:
        """The job in the words of `JobSpec` and of the old routes."""
        return {
            "job_id": "toy",
            "job_id_prefix": "toy",
            "batch_sizes": SIZES if self.cell.policy != "default" else [self.default],
            "default_batch_size": self.default,
            "eta_knob": phase.eta,
            "target_metric": TARGET,
            "max_epochs": self.cell.max_epochs,
            "mab_seed": self.cell.seed,
        }

    def _alone(self, phase: Phase) -> Recurrences:
        self.place.env["JOB"] = json.dumps({**self._spec(phase), "policy": self.cell.policy})
        for _ in range(phase.recurrences):
            self.place.script("train_own", "alone")
        return self._told()

    def _old_routes(self, phase: Phase) -> Recurrences:
        policy = {"policy": "paper"} if self.cell.policy == "paper" else {}  # these clients say none by themselves
        self.place.env["JOB"] = json.dumps({**self._spec(phase), **policy})
        with self.place.served() as url:
            for _ in range(phase.recurrences):
                while not json.loads(self.place.script("train_old_routes", url)):
                    pass
        return self._told()

    def _told(self) -> Recurrences:
        return {one["number"]: one["end"] == "converged" for one in self.place.show()["history"]}


class Truths:
    """What runs at a fixed batch size and limit use, each measured once: policy "default", ZEUS_MODE=off."""

    def __init__(self, folder: Path, warm: WarmStarts) -> None:
        self._folder, self._warm = folder, warm
        self._known: dict[tuple[Any, ...], Used] = {}
        self._locks: dict[tuple[Any, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    def of(self, cell: Cell, phase: Phase, size: int = DEFAULT, limit: float | None = None) -> Used:
        """A run of this size at this limit (None: the highest), in a store of its own."""
        kind = (cell.way, cell.epochs, cell.warm, cell.evaluation, cell.set_up, cell.noise, cell.speed)
        key = (*kind, cell.work, cell.idle_warm, cell.idle_once, phase.growth, phase.card, size, limit)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._known:
                self._known[key] = self._measure(cell, phase, size, limit, f"truth-{len(self._locks)}-{hash(key):x}")
            return self._known[key]

    def _measure(self, cell: Cell, phase: Phase, size: int, limit: float | None, name: str) -> Used:
        plain = Cell(cell.way, cell.epochs, cell.warm, cell.evaluation, cell.set_up, "off", speed=cell.speed)
        plain = replace(plain, policy="default", noise=cell.noise, work=cell.work, seed=4711)
        plain = replace(plain, idle_warm=cell.idle_warm, idle_once=cell.idle_once)
        runs = MEAN_OF if cell.noise else REAL_TIME_MEAN_OF if cell.speed else 1

        def measure(wait: float) -> tuple[Used, float]:
            place = Place(self._folder / f"{name}-{wait:g}", self._warm)
            Runner(place, plain, default=size, wait=wait).run(
                replace(phase, recurrences=runs, eta=0.5, before=""), limit
            )
            show = place.show()
            tries = [one for one in show["tries"] if one["ending"] == "converged"]
            if len(tries) < runs:
                raise Failed(f"only {len(tries)} of {runs} runs at the default reached the target")
            joules, seconds = (sum(one[what] for one in tries) / len(tries) for what in ("joules", "seconds"))
            return Used(joules, seconds), ledger_error(place, show)

        return patiently(measure, plain)


def patiently(measure: Callable[[float], tuple[Any, float]], cell: Cell) -> Any:
    """Watched scripts on a virtual clock: again with longer waits where the machine was too busy to keep up."""
    watched = cell.way.startswith("lines") and not cell.speed
    for wait in (0.12, 0.4, 1.0) if watched else (0.12,):
        found, error = measure(wait)
        if error <= 0.005:
            break
    return found


def ledger_error(place: Place, show: dict[str, Any]) -> float:
    """How far what Zeus measured is from what the script itself saw, at worst, over the runs that converged."""
    marks, worst = place.lines("ledger.jsonl"), 0.0
    numbered = all(mark["trial"] for mark in marks)
    begun = [mark for mark in marks if mark["what"] == "begin"]
    ran = [one for one in show["tries"] if one["epochs"]]
    for order, one in enumerate(ran):
        if one["ending"] != "converged":
            continue
        some = [mark for mark in marks if int(mark["trial"]) == one["number"]] if numbered else []
        if not numbered and order < len(begun):
            some = marks[marks.index(begun[order]) :]
        ends = [mark for mark in some if mark["what"] == "end"]
        begins = [mark for mark in some if mark["what"] == "begin"]
        if begins and ends:
            begin, end = (begins[-1], ends[-1]) if numbered else (begins[0], ends[0])
            for what in ("joules", "seconds"):
                true = end[what] - begin[what]
                worst = max(worst, abs(one[what] - true) / true)
    return worst
