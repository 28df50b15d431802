"""Measures replayed recurrences per CPU-second: the paper's policy on the V100 traces, all six workloads.

    python benchmarks/simulate.py [--traces DIR] [--gpu v100] [--seeds 5] [--policy paper] [--rounds 5]

Each round replays every workload over its horizon with every seed on one core. Reading the traces is not counted. The
best round shows what the machine can do, the median what it did, as other load increases CPU time too.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

from harness import TRACES
from zeus.simulate.results import charged
from zeus.simulate.traces.published import load
from zeus.simulate.workload import Workload

AIM = 20_000  # recurrences per CPU-second


def once(workloads: list[Workload], policy: str, seeds: int) -> int:
    """Replay everything and return the number of recurrences."""
    return sum(len(charged(workload, policy, seed)) for workload in workloads for seed in range(seeds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--gpu", default="v100")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--policy", default="paper")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    workloads = list(load(options.traces, options.gpu).values())
    once(workloads, options.policy, 1)
    speeds = []
    for _ in range(options.rounds):
        start = time.process_time()
        recurrences = once(workloads, options.policy, options.seeds)
        speeds.append(recurrences / (time.process_time() - start))
    print(f"{options.policy} on {options.gpu}: {recurrences} recurrences per round, {options.rounds} rounds")
    print(f"recurrences per CPU-second: best {max(speeds):,.0f}, median {median(speeds):,.0f} (aim: {AIM:,})")


if __name__ == "__main__":
    main()
