"""Checks the savings that Zeus reports on a real GPU: three jobs, each beside measured runs of its default.

    python benchmarks/gpu_savings.py --job images --folder DIR [--recurrences 12] [--budget-seconds 570] [--scale 1.0]
    python benchmarks/gpu_savings.py --report --folder DIR

    images      an unmodified script, read by regular expressions: a ResNet on noisy patterns
    language    a small language model, the Hugging Face Trainer with Zeus's callbacks
    classifier  a wide network on generated tables, trained with ZeusDataLoader

Each recurrence is followed by one run of the default: the same script with policy "default" and ZEUS_MODE=off, in a
store of its own. Data are generated, and each run has its own seed. ZEUS_READ_ONLY=1 is set for all runs, so no power
limit is changed, and the saving comes from the batch size alone.

After each run, DIR/JOB.jsonl and DIR/JOB-default.jsonl hold all facts, as `zeus jobs export` writes them. Nothing else
is kept. Called again with the same DIR, the job goes on from there. A run that does not end within the budget is ended
and not kept. `--report` needs these files alone, so another version of Zeus can be judged on the same facts.

The error of the measured default is that of the mean of its runs, and that of the measured saving is this error times
the recurrences. Zeus compares a recurrence that ran the default with itself. Its luck is part of the measured saving
alone, and of no error: the report says how many recurrences ran the default.

`--target` sets how long a run takes, and `--scale` in how many epochs.

A machine that has only torch and transformers gets the other packages from a folder (for Python 3.12):

    pip install --target DEPS --python-version 3.12 --only-binary=:all: --platform manylinux2014_x86_64 --no-deps \\
        --no-compile --constraint constraints.txt msgspec typing_extensions click rich \\
        markdown-it-py mdurl pygments httpx httpcore h11 anyio sniffio idna certifi nvidia-ml-py regex
    PYTHONPATH=src:DEPS python benchmarks/gpu_savings.py ...

Without a GPU: ZEUS_GPU=virtual:v100, with --scale 0.02 and an easy --target.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from gpu_savings_scripts.jobs import JOBS, Cut, Job, JobStore

UNITS = {"joules": "J", "seconds": "s"}
SHARES = {"joules": "share", "seconds": "time_share"}
ERRORS = 2  # that a reported number may be off
LONGER = 1.3  # a recurrence may take so much longer than the longest before it


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with one standard error."""

    value: float
    error: float

    def text(self, unit: str) -> str:
        digits = 0 if abs(self.value) >= 1000 else 1
        return f"{self.value:.{digits}f} ± {self.error:.{digits}f} {unit}"


def mean(values: list[float]) -> Estimate:
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return Estimate(fmean(values), error)


def stores(job: Job, folder: Path, exported: Path) -> tuple[JobStore, JobStore]:
    """The job's own store and that of its default, in a new folder."""
    return (
        JobStore(folder / "zeus", job, "structured", exported / f"{job.name}.jsonl"),
        JobStore(folder / "default", job, "default", exported / f"{job.name}-default.jsonl"),
    )


def measure(job: Job, folder: Path, recurrences: int, budget_seconds: float) -> None:
    """Run what is missing of the recurrences, each with its run of the default, while there is time."""
    until = time.monotonic() + budget_seconds
    with (
        tempfile.TemporaryDirectory(prefix="zeus-savings-") as place,
        ThreadPoolExecutor(1) as beside,  # exports while the next run goes on
    ):
        of_job, of_default = stores(job, Path(place), folder)
        print("recurrence | trials (size: ending after epochs, J, s) | run of the default | wall time", flush=True)
        longest = 0.0
        for number in range(1, recurrences + 1):
            missing = [one for one in (of_job, of_default) if one.recurrences < number]
            if not missing:
                continue
            began = time.monotonic()
            if began + LONGER * longest > until:
                print(f"The budget is nearly over: recurrence {number} was not begun.", flush=True)
                return
            told = dict.fromkeys((of_job, of_default), "kept")
            for one in missing:
                try:
                    told[one] = _tries(one.run(until))
                except Cut:
                    print(f"{number} | The budget is over: a run was ended and is not kept.", flush=True)
                    return
                beside.submit(one.export)
            took = time.monotonic() - began
            longest = max(longest, took)
            print(f"{number} | {told[of_job]} | {told[of_default]} | {took:.1f} s", flush=True)


def _tries(recurrence: dict[str, Any]) -> str:
    return " -> ".join(
        f"{one['batch_size']}: {one['ending']} after {one['epochs']}, {one['joules'] or math.nan:.0f} J, "
        f"{one['seconds']:.1f} s"
        for one in recurrence["tries"]
    )


def report(job: Job, exported: Path) -> None:
    """Print what Zeus reports beside what was measured, from the exported files alone."""
    with tempfile.TemporaryDirectory(prefix="zeus-savings-") as place:
        of_job, of_default = stores(job, Path(place), exported)
        told, truth = of_job.show(), of_default.converged()
    count = sum(one["end"] == "converged" for one in told["history"])
    default, saving = told["default"], told["saving"]
    usual = told["spec"]["default_batch_size"]
    ran_default = sum(one["end"] == "converged" and one["batch_size"] == usual for one in told["history"])
    for what, unit in UNITS.items():
        default_run = mean([one[what] for one in truth])
        used = sum(one[what] or 0.0 for one in told["history"])
        saved = Estimate(count * default_run.value - used, count * default_run.error)
        share = f" ({saved.value / (count * default_run.value):+.1%})"
        head = f"| {job.name} | {count} ({ran_default} at the default) | {what} of"
        runs = f"{len(truth)} run{'s' if len(truth) != 1 else ''}"
        if default is None or saving is None:
            print(
                f"{head} the default | not reported: {told['default_why_not']} | | {default_run.text(unit)}, {runs} |"
            )
            continue
        of_run = Estimate(default[what], default[f"{what}_error"])
        of_all = Estimate(saving[what], saving[f"{what}_error"])
        print(_row(f"{head} the default", of_run, default["basis"], default_run, unit, f", {runs}"))
        print(
            _row(f"{head} the saving", of_all, saving["basis"], saved, unit, share, f" ({saving[SHARES[what]]:+.1%})")
        )


def _row(head: str, told: Estimate, basis: str, true: Estimate, unit: str, more: str, told_more: str = "") -> str:
    off = abs(told.value - true.value)
    both = math.hypot(told.error, true.error)
    within = [
        f"{'yes' if off <= ERRORS * error else 'NO'} ({off / error if error else math.inf:.1f})"
        for error in (told.error, both)
    ]
    cells = [f"{told.text(unit)}{told_more}", basis, f"{true.text(unit)}{more}", *within]
    return f"{head} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", choices=JOBS)
    parser.add_argument("--folder", type=Path, help="where the exported files lie (default: a new one)")
    parser.add_argument("--recurrences", type=int, default=12)
    parser.add_argument("--budget-seconds", type=float, default=570.0)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the samples of an epoch")
    parser.add_argument("--target", type=float, help="instead of the job's")
    parser.add_argument("--report", action="store_true", help="only report what is in the folder")
    options = parser.parse_args()
    if not options.report and options.job is None:
        parser.error("--job is missing")
    if options.report and options.folder is None:
        parser.error("--folder is missing")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="zeus-savings-"))
    if not options.report:
        job = replace(JOBS[options.job], scale=options.scale)
        if options.target is not None:
            job = replace(job, target=options.target)
        measure(job, folder, options.recurrences, options.budget_seconds)
    print(f"\nFrom {folder}:\n")
    print("| job | recurrences | | reported | basis | measured | within two reported errors | within two combined |")
    print("|---|---|---|---|---|---|---|---|")
    for name, job in JOBS.items():
        there = (folder / f"{name}.jsonl").exists() and (folder / f"{name}-default.jsonl").exists()
        if there and options.job in (None, name):
            report(job, folder)


if __name__ == "__main__":
    main()
