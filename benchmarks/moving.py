"""Moves a job to another GPU model: anew, with what it learnt (translation, §7), and with `zeus profile` before that.

    python benchmarks/moving.py                               # V100 to A40, after 40 recurrences there
    python benchmarks/moving.py --from A40 --to V100 --before 10
    python benchmarks/moving.py --seconds 5 --setup 30   # the paper's 5 s, and a slow start

Cumulative regret (Equation 8) over the next recurrences on the new GPU, in runs at the best batch size and limit there.
Each way sees the same draws of the published traces, and batch sizes from 8 up that are in the traces of both GPUs.
`zeus profile` is charged: --seconds at each limit of each size, and --setup of each size at the highest limit.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from harness import TRACES
from zeus.simulate import baselines, regret
from zeus.simulate.replay import SimulatedJob, job_of, quick_profile
from zeus.simulate.traces import published
from zeus.simulate.workload import Workload

LEAST_SIZE = 8
WAYS = ("anew", "translated", "profiled")
HORIZONS = (1, 5, 10, 20, 50)


@dataclass(frozen=True)
class Moved:
    """One way, on one workload: mean regret by horizon, and what `zeus profile` cost, in runs at the best choice."""

    workload: str
    policy: str
    eta: float
    way: str
    regret: dict[int, float]
    error: dict[int, float]  # standard error over seeds
    profiling: float
    profiling_seconds: float
    profiling_joules: float


def shared(old: Workload, new: Workload) -> tuple[Workload, Workload]:
    """Both workloads with the sizes that they share."""
    sizes = [size for size in old.sizes if size in new.sizes and size >= LEAST_SIZE]
    default = max(size for size in sizes if size <= max(min(old.default, new.default), sizes[0]))
    return tuple(  # type: ignore[return-value]
        replace(
            one,
            default=default,
            runs={size: one.runs[size] for size in sizes},
            profiles={size: one.profiles[size] for size in sizes},
        )
        for one in (old, new)
    )


def profiling(workload: Workload, seconds: float, setup: float) -> tuple[float, float]:
    """Seconds and joules of `zeus profile` for all sizes."""
    each = [quick_profile(workload, size, seconds, setup) for size in workload.sizes]
    return sum(one.seconds for one in each), sum(one.joules for one in each)


def costs(
    way: str, old: Workload, new: Workload, policy: str, eta: float, seed: int, before: int, after: int
) -> list[float]:
    """The cost of each recurrence after the move. Recurrences have the same numbers, and so the same draws, in all."""
    there, here = (baselines.contender(policy, one, eta) for one in (old, new))
    job = job_of(old, eta_knob=eta, mab_seed=seed)
    if way == "anew":
        world = SimulatedJob(new, here.policy, job, seed, here.limits(new, eta))
    else:
        world = SimulatedJob(old, there.policy, job, seed, there.limits(old, eta))
        run(world, range(1, before + 1))
        world.move(new, here.limits(new, eta))
    if way == "profiled":
        for size in new.sizes:
            world.profile(size)
    return run(world, range(before + 1, before + after + 1))


def run(world: SimulatedJob, recurrences: Iterable[int]) -> list[float]:
    found = []
    for number in recurrences:
        one = world.submit(number)
        while world.goes_on(one):
            pass
        found.append(sum(each.cost for each in one.tries))
    return found


def moved(
    old: Workload, new: Workload, policy: str, eta: float, seeds: Sequence[int], given: argparse.Namespace
) -> list[Moved]:
    unit, rows = regret.optimum(new, eta), []
    time, joules = profiling(new, given.seconds, given.setup)
    price = new.cost_model(eta).cost(joules, time) / unit
    for way in WAYS:
        each = [costs(way, old, new, policy, eta, seed, given.before, max(HORIZONS)) for seed in seeds]
        charged = price if way == "profiled" else 0.0
        sums = {t: [regret.cumulative(one[:t], unit) / unit + charged for one in each] for t in HORIZONS}
        means = {t: fmean(some) for t, some in sums.items()}
        errors = {t: stdev(some) / len(some) ** 0.5 if len(some) > 1 else 0.0 for t, some in sums.items()}
        rows.append(Moved(new.name, policy, eta, way, means, errors, charged, time, joules))
    return rows


def table(rows: Sequence[Moved]) -> str:
    lines = [
        "| workload | policy | way | " + " | ".join(f"T = {t}" for t in HORIZONS) + " | profiling |",
        "|---" * (len(HORIZONS) + 4) + "|",
    ]
    for one in rows:
        cells = " | ".join(f"{one.regret[t]:.2f} ± {one.error[t]:.2f}" for t in HORIZONS)
        took = f"{one.profiling:.3f} runs ({one.profiling_seconds:.0f} s, {one.profiling_joules / 1e3:.0f} kJ)"
        lines.append(
            f"| {one.workload} | {one.policy} | {one.way} | {cells} | {took if one.way == 'profiled' else '-'} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--from", dest="old", default="V100")
    parser.add_argument("--to", dest="new", default="A40")
    parser.add_argument("--before", type=int, default=40, help="recurrences on the old GPU")
    parser.add_argument("--policies", default="paper,structured")
    parser.add_argument("--etas", default="0.5")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=0.5, help="of `zeus profile` at each limit of each size")
    parser.add_argument("--setup", type=float, default=0.0, help="seconds before the first step of each size")
    given = parser.parse_args()
    old, new = (published.load(given.traces, gpu) for gpu in (given.old, given.new))
    rows = [
        row
        for eta in map(float, given.etas.split(","))
        for policy in given.policies.split(",")
        for name in new
        if name in old
        for row in moved(*shared(old[name], new[name]), policy, eta, range(given.seeds), given)
    ]
    print(table(rows))
    for policy in given.policies.split(","):
        for way in WAYS:
            mine = [row for row in rows if (row.policy, row.way) == (policy, way)]
            means = ", ".join(f"T = {t}: {fmean(row.regret[t] for row in mine):.2f}" for t in HORIZONS)
            print(f"mean over workloads, {policy}, {way}: {means}")


if __name__ == "__main__":
    main()
