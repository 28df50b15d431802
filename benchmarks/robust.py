"""Replays with extreme settings, every b0, GPU and workload, and checks for crashes, NaN and warnings.

    python benchmarks/robust.py [--gpus v100,...] [--recurrences 25] [--policy paper,...] [--virtual]

It prints how many replays ran and what went wrong. A warning counts as an error.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from harness import TRACES
from zeus.device.virtual import presets
from zeus.simulate import virtual
from zeus.simulate.baselines import names
from zeus.simulate.results import ReplayResult, simulate
from zeus.simulate.traces import published
from zeus.simulate.workload import Workload

BETAS = (1.0, 1.5, 2.0, 3.0, 5.0)
ETAS = (0.0, 0.25, 0.5, 0.75, 1.0)
WINDOWS = (0, 1, 2, 10)


def workloads(gpus: Sequence[str], also_virtual: bool) -> Iterator[Workload]:
    """Every workload with every b0."""
    at_hand = [one for gpu in gpus for one in published.load(TRACES, gpu).values()]
    if also_virtual:
        at_hand += [one for card in presets.card_names() for one in virtual.load(card).values()]
    for one in at_hand:
        for size in one.sizes:
            yield replace(one, default=size)


def sound(run: ReplayResult) -> bool:
    """Whether all numbers are finite."""
    numbers = [run.cumulative_cost, run.cumulative_energy, run.cumulative_time, run.cumulative_regret]
    ratios = [run.last5_energy_ratio, run.last5_time_ratio]
    return all(n is not None and math.isfinite(n) for n in [*numbers, *ratios]) and run.cumulative_cost > 0


def check(workload: Workload, policy: str, recurrences: int, concurrency: int, seen: Counter[str]) -> None:
    for beta, eta, window in product(BETAS, ETAS, WINDOWS):
        what = f"{policy}, {workload.name} on {workload.gpu}, b0 {workload.default}, {beta=} {eta=} {window=}"
        try:
            run = simulate(
                workload, policy, 0, eta=eta, beta=beta, window=window, recurrences=recurrences, concurrency=concurrency
            )
        except Exception as wrong:  # count and print it, then go on
            seen["crashes and warnings"] += 1
            print(f"{what}: {wrong!r}")
            continue
        seen["replays"] += 1
        seen["recurrences"] += run.recurrences
        if not sound(run):
            seen["not a number"] += 1
            print(f"{what}: {run}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", default="", help="default: all in the traces")
    parser.add_argument("--recurrences", type=int, default=25)
    parser.add_argument("--policy", default="paper", help="names by commas, or all")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--virtual", action="store_true", help="the virtual GPUs too")
    options = parser.parse_args()
    warnings.simplefilter("error")
    chosen = names() if options.policy == "all" else options.policy.split(",")
    gpus = options.gpus.split(",") if options.gpus else published.gpus(TRACES)
    start, seen = time.perf_counter(), Counter[str]()
    for workload in workloads(gpus, options.virtual):
        seen["workloads with a b0"] += 1
        for policy in chosen:
            check(workload, policy, options.recurrences, options.concurrency, seen)
    for what in ("workloads with a b0", "replays", "recurrences", "crashes and warnings", "not a number"):
        print(f"{what}: {seen[what]:,}")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
