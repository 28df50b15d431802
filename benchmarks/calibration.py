"""Whether the chances that the structured policy states come true.

    python benchmarks/calibration.py [--traces DIR] [--every-default] [--law 100] [--seeds 20] [--first-seed 0]

Each decision that states a chance names two sizes. It comes true if the first costs less than the second, on average
over the runs of the trace. Decisions are grouped by the chance that they stated.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parent))

from random_workloads import law_world
from regret import TRACES
from zeus.simulate import baselines
from zeus.simulate.replay import job_of, replay
from zeus.simulate.traces import published
from zeus.simulate.workload import Workload

STATED = re.compile(r"^(\d+) has a (\d+) % chance to beat (\d+)")
EDGES = (10, 20, 30, 40, 50, 60, 70, 80, 90)


def chances(workload: Workload, eta: float, seed: int, recurrences: int) -> Iterator[tuple[int, float]]:
    """The chances stated in a replay, in per cent, and whether they came true; half if both sizes cost the same."""
    usual = {}
    for size in workload.sizes:
        epoch = workload.best_epoch(size, eta)
        needed = fmean(n if n is not None else math.inf for n in workload.runs[size])
        usual[size] = needed * workload.cost_model(eta).cost(epoch.joules, epoch.seconds)
    who, job = baselines.contender("structured", workload, eta), job_of(workload, eta_knob=eta, mab_seed=seed)
    for one in islice(replay(workload, who.policy, job, seed, limits=who.limits), recurrences):
        for each in one.tries:
            found = STATED.match(each.decision.reason)
            if found:
                size, chance, other = map(int, found.groups())
                yield chance, (usual[size] < usual[other]) + 0.5 * (usual[size] == usual[other])


def table(workloads: Sequence[Workload], etas: Sequence[float], seeds: range, recurrences: int) -> None:
    """Print how often chances of each group came true."""
    groups: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for workload in workloads:
        for eta in etas:
            for seed in seeds:
                for chance, true in chances(workload, eta, seed, recurrences):
                    groups[sum(chance >= edge for edge in EDGES)].append((chance, true))
    for group in sorted(groups):
        low, each = (0, *EDGES)[group], groups[group]
        told, true = fmean(chance for chance, _ in each), 100 * fmean(came for _, came in each)
        print(f"{low:3} to {low + 9} %: stated {told:5.1f} %, true {true:5.1f} % of {len(each)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--every-default", action="store_true", help="start each workload at each of its sizes")
    parser.add_argument("--law", type=int, default=0, help="drawn worlds of the law instead of traces")
    parser.add_argument("--etas", default="0.5")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--recurrences", type=int, default=40)
    given = parser.parse_args()
    found = [
        one for gpu in published.gpus(given.traces) for one in published.load(given.traces, gpu, smallest=1).values()
    ]
    if given.every_default:
        found = [replace(one, default=size) for one in found for size in one.sizes]
    if given.law:
        found = [law_world(number) for number in range(given.law)]
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    table(found, [float(eta) for eta in given.etas.split(",")], seeds, given.recurrences)


if __name__ == "__main__":
    main()
