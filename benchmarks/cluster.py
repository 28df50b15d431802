"""Measures how fast a cluster is replayed: a generated trace of 1.2 million jobs, from CSV to Figure 9 (§6.3).

    python benchmarks/cluster.py [--jobs 1200000] [--groups 20000] [--workers 2] [--policy paper]

Sizes and runtimes of groups are heavy-tailed, and on average up to four jobs of a group overlap. The trace is not a
model of any real cluster; it serves only to measure speed. The output is the seconds of each part, jobs per second, and
an upper bound of the memory of all processes (the peak of the parent plus the peak of each worker).
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from harness import TRACES
from zeus.simulate.cluster import simulate
from zeus.simulate.cluster.match import match
from zeus.simulate.cluster.tables import read_groups
from zeus.simulate.traces.published import load
from zeus.simulate.workers import spread


def generate(path: Path, jobs: int, groups: int, seed: int = 0) -> None:
    """Write a `group,start_time,end_time` CSV of about this many jobs, in order of groups."""
    rng = np.random.default_rng(seed)
    shares = rng.lognormal(0, 1.5, groups)
    sizes = np.maximum(1, np.rint(shares / shares.sum() * jobs)).astype(int)
    with path.open("w") as file:
        file.write("group,start_time,end_time\n")
        for group, size in enumerate(sizes):
            typical = rng.lognormal(8, 1.5)
            runtimes = typical * rng.lognormal(0, 0.3, size)
            starts = rng.uniform(0, 1e6) + np.cumsum(rng.exponential(typical / rng.uniform(0.2, 4), size))
            file.writelines(
                f"group-{group},{start:.1f},{start + runtime:.1f}\n"
                for start, runtime in zip(starts, runtimes, strict=True)
            )


def peak_megabytes(workers: int) -> float:
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of the largest process
    return (own + workers * child) / 1024


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=1_200_000)
    parser.add_argument("--groups", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--policy", default="paper")
    parser.add_argument("--gpu", default="v100")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zeus-cluster-") as folder:
        path = Path(folder) / "groups.csv"
        generate(path, args.jobs, args.groups)
        begun, cpu = time.perf_counter(), cpu_seconds()
        trace = read_groups(path)
        read = time.perf_counter()
        clusters = match(trace, load(TRACES, args.gpu))
        matched = time.perf_counter()
        rows = simulate(clusters, [args.policy], workers=partial(spread, processes=args.workers))
        done = time.perf_counter()
    print(f"{trace.jobs} jobs of {len(trace.groups)} groups, policy {args.policy}, {args.workers} workers")
    for row in rows:
        print(
            f"  {row.workload:14} {row.groups:6} groups {row.jobs:8} jobs {row.tries:8} tries "
            f"energy {row.energy_ratio:.3f} time {row.time_ratio:.3f} of Default"
        )
    print(f"read {read - begun:.1f} s, matched {matched - read:.1f} s, replayed {done - matched:.1f} s")
    used, took = cpu_seconds() - cpu, done - begun
    print(f"total {took:.1f} s: {trace.jobs / took:.0f} jobs/s; {peak_megabytes(args.workers):.0f} MB")
    print(f"{used:.1f} CPU-seconds: {trace.jobs / used:.0f} jobs per CPU-second, which does not depend on other load")


if __name__ == "__main__":
    main()
