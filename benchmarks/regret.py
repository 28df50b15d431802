"""Compares the regret of policies with the paper's: on traces, with concurrency, under drift, and on random workloads.

    python benchmarks/regret.py                          # the published traces: T = 20, 50, 2|B||P|
    python benchmarks/regret.py --concurrency 4 --horizons 50
    python benchmarks/regret.py --drift once             # or linear, recurring: after the change, T = 100
    python benchmarks/regret.py --worlds base,steep      # or all
    python benchmarks/regret.py --gates                  # jobs that a policy must not get stuck in
    python benchmarks/regret.py --traces benchmarks/h200/traces --every-default --horizons 10,20,40
    python benchmarks/regret.py --policies structured,structured@profiled    # with `zeus profile` before the first run
    python benchmarks/regret.py --walk                   # over power limits: loss and overhead by θ
    python benchmarks/regret.py --speed                  # of one decision, and of the replay

Traces (--traces), GPUs, workloads, η, seeds and horizons can be chosen. All batch sizes of the traces are used, as in
the documented numbers; --smallest-batch-size 8 is what `zeus simulate` does. --json FILE writes all numbers. Ratios
compare mean regrets over seeds. "p95" is the 95th percentile over seeds, relative to the mean of the paper's policy;
"without luck" is the same with each converged run charged what its size needs on average; the last one is relative to
the 95th percentile of the paper's policy. "first 10" is the cost of the first ten recurrences relative to Default.
Tuning used seeds from 1000 on, so a report must not use them (docs/decisions/structured-policy.md).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # also where a test loads this file

from random_workloads import KINDS, launch_bound, law_world, shifted, worlds
from zeus.job import Ask, Ending, Gpus, Outcome, Phase, Profiled, Trial, replace
from zeus.policy.registry import find_policy
from zeus.simulate import baselines, regret
from zeus.simulate.limit_plans import walk
from zeus.simulate.replay import ReplayedRecurrence, job_of, replay, replay_each
from zeus.simulate.traces import published
from zeus.simulate.traces.rows import published as folder
from zeus.simulate.workload import Workload

TRACES = folder(Path(__file__).parents[1])
FIRST = 10
CHANGE, DRIFT_RECURRENCES, OVER, EVERY, WINDOW = 50, 100, 20, 25, 10
SHIFTS = (1, 2, -1, -2)
STUCK, DEARER = 30, 1.2  # recurrences in a row at a size this much dearer than the best: the job is stuck
SETTLED, NEAR = 20, 1.1  # recurrences after which the cost of the size in use should be this near the best
LAUNCH_BOUND = (
    (0.15, 0.08, 40),
    (0.25, 0.08, 40),
    (0.35, 0.08, 40),
    (0.2, 0.15, 40),
    (0.2, 0.08, 32),
    (0.2, 0.08, 60),
    (0.2, 0.08, 100),
)
DRIFTS: dict[str, Callable[[int], float]] = {  # how far the table has gone, some recurrences after the change
    "once": lambda after: 1.0,
    "linear": lambda after: min(1.0, after / OVER),
    "recurring": lambda after: float((after - 1) // EVERY % 2 == 0),
}


@dataclass(frozen=True)
class Row:
    """One policy on one workload: regrets relative to the mean of the paper's policy, by horizon."""

    where: str
    policy: str
    eta: float
    ratios: Mapping[str, float]
    p95: Mapping[str, float]
    p95_decided: Mapping[
        str, float
    ]  # the same, where each run that converged is charged what its size needs on average
    first: float
    regret: Mapping[str, float] = field(default_factory=dict)  # in joules of cost


class Costs(list[float]):
    """The cost of each recurrence. `decided` charges converged runs their mean cost, which removes luck."""

    decided: list[float]


def _costs(path: Iterable[Workload], eta: float, past: Iterable[ReplayedRecurrence]) -> Costs:
    found = Costs()
    found.decided = []
    for workload, one in zip(path, past, strict=False):
        found.append(one.cost)
        last, (size, watts) = one.tries[-1], one.choice
        lucky = 0.0
        if one.converged:
            epoch = workload.profiles[size].at(watts)
            needed = fmean(n for n in workload.runs[size] if n is not None and n <= workload.max_epochs)
            lucky = (needed - last.outcome.epochs) * workload.cost_model(eta).cost(epoch.joules, epoch.seconds)
        found.decided.append(one.cost + lucky)
    return found


def costs(
    workload: Workload, policy: str, eta: float, seed: int, recurrences: int, concurrency: int = 1, window: int = 0
) -> Costs:
    policy, _, start = policy.partition("@")
    who = baselines.contender(policy, workload, eta)
    job = job_of(workload, eta_knob=eta, mab_seed=seed, window_size=window, start=start or "default")
    steps = replay(workload, who.policy, job, seed, limits=who.limits, concurrency=concurrency)
    return _costs(repeat(workload), eta, islice(steps, recurrences))


def drifting(path: Sequence[Workload], policy: str, eta: float, seed: int, window: int) -> Costs:
    """The cost of each recurrence of a job whose data drift, with one workload per recurrence."""
    who = baselines.contender(policy, path[0], eta)
    job = job_of(path[0], eta_knob=eta, mab_seed=seed, window_size=window)
    return _costs(path, eta, replay_each(path, who.policy, job, seed, limits=who.limits))


def path_of(workload: Workload, kind: str, by: int) -> list[Workload]:
    """One workload per recurrence. From CHANGE on, the epochs to target shift by this many sizes."""
    made: dict[float, Workload] = {0.0: workload}
    path = []
    for recurrence in range(1, DRIFT_RECURRENCES + 1):
        share = DRIFTS[kind](recurrence - CHANGE) if recurrence > CHANGE else 0.0
        path.append(made.setdefault(share, shifted(workload, by, share)))
    return path


# ---------------------------------------------------------------------- numbers


def geometric(values: Iterable[float]) -> float:
    """Geometric mean. A regret that luck made negative counts as 0.001."""
    return math.exp(fmean(math.log(max(value, 1e-3)) for value in values))


def percentile(values: Iterable[float], share: float = 0.95) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def compare(
    where: str,
    runs: Mapping[str, Sequence[Costs]],
    best: Sequence[float],
    default: float,
    spans: Mapping[str, slice],
    eta: float,
) -> list[Row]:
    """Rows of all policies except the paper's. `best` is the least expected cost in each recurrence."""

    def over(of: Callable[[Costs], list[float]]) -> dict[str, dict[str, list[float]]]:
        return {
            name: {policy: [sum(of(one)[span]) - sum(best[span]) for one in each] for policy, each in runs.items()}
            for name, span in spans.items()
        }

    found, decided = over(lambda one: one), over(lambda one: one.decided)
    rows = []
    for policy in runs:
        rows.append(
            Row(
                where,
                policy,
                eta,
                {name: fmean(each[policy]) / fmean(each["paper"]) for name, each in found.items()},
                {name: percentile(each[policy]) / fmean(each["paper"]) for name, each in found.items()},
                {name: percentile(each[policy]) / fmean(found[name]["paper"]) for name, each in decided.items()},
                fmean(fmean(one[:FIRST]) for one in runs[policy]) / default,
                {name: fmean(each[policy]) for name, each in found.items()},
            )
        )
    return rows


def on_traces(
    workload: Workload, policies: Sequence[str], eta: float, seeds: Iterable[int], horizons: Sequence[int], k: int
) -> list[Row]:
    """Compare on traces. A horizon of 0 stands for 2|B||P|."""
    spans = {"full" if not horizon else str(horizon): slice(horizon or workload.horizon) for horizon in horizons}
    most = max(span.stop for span in spans.values())
    seeds = list(seeds)
    runs = {name: [costs(workload, name, eta, seed, most, k) for seed in seeds] for name in ("paper", *policies)}
    best = [regret.optimum(workload, eta)] * most
    return compare(
        f"{workload.gpu} {workload.name} from {workload.default}", runs, best, _default(workload, eta), spans, eta
    )


def under_drift(
    workload: Workload, policies: Sequence[str], eta: float, seeds: Iterable[int], kind: str, by: int
) -> list[Row]:
    """Compare under drift. The paper's policy has a window, ours an alarm."""
    path = path_of(workload, kind, by)
    if not all(any(one.always_converges(size) for size in one.sizes) for one in path):
        return []
    least = {id(one): regret.optimum(one, eta) for one in path}
    seeds = list(seeds)
    runs = {
        name: [drifting(path, name, eta, seed, WINDOW if name == "paper" else 0) for seed in seeds]
        for name in ("paper", *policies)
    }
    spans = {"before": slice(CHANGE), "after": slice(CHANGE, DRIFT_RECURRENCES)}
    where = f"{workload.gpu} {workload.name} {by:+}"
    best = [least[id(one)] for one in path]
    if any(fmean(sum(c[span]) - sum(best[span]) for c in runs["paper"]) <= 0 for span in spans.values()):
        return []  # a shift that leaves nothing to lose
    return compare(where, runs, best, _default(workload, eta), spans, eta)


def in_worlds(
    kind: str, policies: Sequence[str], eta: float, seeds: Iterable[int], many: int, recurrences: int, k: int
) -> tuple[list[Row], dict[str, tuple[float, float]]]:
    """Rows; and for each policy its total regret relative to the paper's, and how often it was worse."""
    rows: list[Row] = []
    for world in islice(worlds(kind), many):
        runs = {name: [costs(world, name, eta, s, recurrences, k) for s in seeds] for name in ("paper", *policies)}
        unit = regret.optimum(world, eta)
        spans = {str(recurrences): slice(recurrences)}
        for row in compare(world.name, runs, [unit] * recurrences, _default(world, eta), spans, eta):
            rows.append(replace(row, regret={span: value / unit for span, value in row.regret.items()}))
    sums = {}
    for policy in policies:
        ours, theirs = ([r.regret[str(recurrences)] for r in rows if r.policy == name] for name in (policy, "paper"))
        worse = fmean(float(a > b) for a, b in zip(ours, theirs, strict=True))
        sums[policy] = sum(ours) / sum(theirs), worse
    return rows, sums


# ---------------------------------------------------------------------- gates


def sizes_used(workload: Workload, policy: str, eta: float, seed: int, recurrences: int, after: int = 0) -> list[float]:
    """What the size of each recurrence costs on average, relative to the best size, without those that explore."""
    who = baselines.contender(policy, workload, eta)
    job, dear = job_of(workload, eta_knob=eta, mab_seed=seed), {}
    for size in workload.sizes:
        epoch = workload.best_epoch(size, eta)
        reached = sum(n is not None and n <= workload.max_epochs for n in workload.runs[size])
        runs = len(workload.runs[size]) / reached if reached else math.inf
        dear[size] = runs * workload.epochs_charged(size) * workload.cost_model(eta).cost(epoch.joules, epoch.seconds)
    best = min(cost for size, cost in dear.items() if workload.always_converges(size))
    past = islice(replay(workload, who.policy, job, seed, limits=who.limits), after, recurrences)
    quiet = (one for one in past if all(each.decision.phase is not Phase.EXPLORING for each in one.tries))
    return [dear[one.choice[0]] / best for one in quiet]


def gates(policies: Sequence[str], eta: float, seeds: Sequence[int], many: int) -> dict[str, dict[str, float]]:
    """Jobs that are stuck on NeuMF; and drawn worlds of the law and launch-bound jobs that are near their best size."""
    found: dict[str, dict[str, float]] = {policy: {} for policy in policies}
    for policy, each in found.items():
        for gpu in published.gpus(TRACES):
            pair = published.load(TRACES, gpu, ["NeuMF"], smallest=1)["NeuMF"]
            dear = [sizes_used(pair, policy, eta, seed, 2 * STUCK) for seed in seeds]
            each[f"stuck on {gpu}"] = sum(longest(one, DEARER) > STUCK for one in dear)
        drawn = [settles(law_world(number), policy, eta, seeds[0]) for number in range(many)]
        each["near the best in worlds of the law"] = fmean(drawn)
        for world in (launch_bound(*given) for given in LAUNCH_BOUND):
            each[f"near the best, {world.name}"] = fmean(settles(world, policy, eta, seed) for seed in seeds)
        print(policy, *(f"{name}: {value:g}" for name, value in each.items()), sep="\n    ", flush=True)
    return found


def settles(world: Workload, policy: str, eta: float, seed: int) -> bool:
    """Whether the job is near its best size after SETTLED recurrences."""
    return next(iter(sizes_used(world, policy, eta, seed, 2 * SETTLED, after=SETTLED)), math.inf) <= NEAR


def longest(values: Iterable[float], least: float) -> int:
    """The largest number of values in a row above this."""
    longest = run = 0
    for value in values:
        run = run + 1 if value > least else 0
        longest = max(longest, run)
    return longest


def _default(workload: Workload, eta: float) -> float:
    used = baselines.default(workload)
    return workload.cost_model(eta).cost(used.joules, used.seconds)


# ---------------------------------------------------------------------- speed


def speed(sizes: int = 30, observations: int = 200) -> dict[str, float]:
    """Seconds per decision after some runs, seconds to fold one run, and recurrences per CPU-second."""
    world = next(worlds("wide"))
    policy, job = find_policy("structured"), job_of(world)
    state, sequence, chance = policy.start(job), 0, random.Random(0)
    spent = {"decide": 0.0, "observe": 0.0}
    for number in range(1, observations + 1):
        ask = Ask(number=number, recurrence=number, gpus=Gpus("g", 1, 250.0), eta=0.5)
        size = world.sizes[number % sizes]
        began = time.process_time()
        decision = policy.decide(state, chance, ask)
        spent["decide"] += time.process_time() - began
        trial = Trial(ask=ask, decision=type(decision)(size, decision.phase, "", None), asked=sequence + 1)
        profile = Profiled(
            sequence=sequence + 2, batch_size=size, gpu_model="g", joules=9.0, seconds=1.0, max_watts=250.0
        )
        needed = chance.choice(world.runs[size])
        ending = Ending.CONVERGED if needed else Ending.NOT_CONVERGED
        outcome = Outcome(ending=ending, joules=50.0, seconds=5.0, epochs=needed or world.max_epochs)
        began = time.process_time()
        for event in (trial, profile, trial.end(sequence + 3, outcome)):
            state = policy.observe(state, event)
        spent["observe"] += time.process_time() - began
        sequence += 3
    began = time.process_time()
    done = sum(
        len(costs(one, "structured", 0.5, 0, 100)) for kind in ("base", "wide") for one in islice(worlds(kind), 10)
    )
    rate = done / (time.process_time() - began)
    return {name: seconds / observations for name, seconds in spent.items()} | {"recurrences_per_second": rate}


# ---------------------------------------------------------------------- the walk over power limits


def walks(pairs: Sequence[Workload], eta: float, theta: float, nearest: bool) -> dict[str, float]:
    """Loss of the chosen limit and overhead of the first epoch, in epoch costs. Sizes go outward from the default."""
    losses, extras, measured = [], [], []
    for pair in pairs:
        model = pair.cost_model(eta)
        best: dict[int, float] = {}
        for size in sorted(pair.sizes, key=lambda size: abs(math.log(size / pair.default))):
            near = min(best, key=lambda other: abs(math.log(other / size)), default=None)
            start = best[near] if nearest and near is not None else None
            plan = walk(pair.profiles[size], eta, pair.max_watts, start, theta)
            epoch = pair.best_epoch(size, eta)
            least = model.cost(epoch.joules, epoch.seconds)
            best[size] = plan.limit_watts
            losses.append(model.of(plan.rest) / least - 1)
            extras.append(model.of(plan.first) / model.of(plan.rest) - 1)
            measured.append(model.of(pair.profiling_epoch(size)) / least - 1)
    return {
        "loss": fmean(losses),
        "loss_worst": max(losses),
        "overhead": fmean(extras),
        "overhead_of_all_limits": fmean(measured),
    }


def walk_table(pairs: Sequence[Workload], etas: Sequence[float]) -> dict[str, dict[str, float]]:
    found = {}
    for eta in etas:
        for theta in (0.0, 0.05, 0.1, 0.2, 0.3):
            for nearest in (False, True):
                name = f"eta {eta:g} theta {theta:g} from {'the nearest size' if nearest else 'the top'}"
                one = found[name] = walks(pairs, eta, theta, nearest)
                print(
                    f"{name:40} loss {100 * one['loss']:.2f} %, worst {100 * one['loss_worst']:.1f} % | overhead "
                    f"{one['overhead']:.3f} epochs (all limits: {one['overhead_of_all_limits']:.3f})"
                )
    return found


# ---------------------------------------------------------------------- tables


def summary(rows: Sequence[Row], policy: str) -> dict[str, Any]:
    mine = [row for row in rows if row.policy == policy]
    spans = list(mine[0].ratios)
    worst = max(mine, key=lambda row: max(row.ratios.values()))
    tail = max(mine, key=lambda row: max(row.p95.values()))
    decided = max(mine, key=lambda row: max(row.p95_decided.values()))
    papers = {(row.where, row.eta): row.p95 for row in rows if row.policy == "paper"}
    beside = {row.where: max(row.p95[s] / papers[row.where, row.eta][s] for s in spans) for row in mine}
    return {
        "mean": {span: geometric(row.ratios[span] for row in mine) for span in spans},
        "worst": max(worst.ratios.values()),
        "worst_at": worst.where,
        "p95": max(tail.p95.values()),
        "p95_at": tail.where,
        "p95_decided": max(decided.p95_decided.values()),
        "p95_decided_at": decided.where,
        "p95_beside": max(beside.values()),
        "p95_beside_at": max(beside, key=beside.__getitem__),
        "first": geometric(row.first for row in mine),
        "first_worst": max(row.first for row in mine),
    }


def show(title: str, rows: Sequence[Row], policies: Sequence[str], details: bool) -> dict[str, Any]:
    found = {}
    for policy in policies:
        if details:
            for row in rows:
                if row.policy == policy:
                    means = " ".join(f"{span} {value:6.3f}" for span, value in row.ratios.items())
                    tails = " ".join(f"{value:5.2f}" for value in (*row.p95.values(), *row.p95_decided.values()))
                    print(f"    {row.where:28} {means}   p95 {tails}   first {row.first:.2f}")
        sums = found[policy] = summary(rows, policy)
        means = " ".join(f"{span} {value:.3f}" for span, value in sums["mean"].items())
        tail = f"p95 {sums['p95']:.2f} ({sums['p95_at']})"
        tail += f", without luck {sums['p95_decided']:.2f} ({sums['p95_decided_at']})"
        tail += f", over the paper's own p95 {sums['p95_beside']:.2f} ({sums['p95_beside_at']})"
        first = f"first 10: {sums['first']:.3f}, worst {sums['first_worst']:.2f}"
        worst = f"worst {sums['worst']:.2f} ({sums['worst_at']})"
        print(f"{title} {policy:12} {means} | {worst} | {tail} | {first}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--gpus", default="", help="default: all in the folder")
    parser.add_argument("--workloads", default="", help="default: all")
    parser.add_argument("--smallest-batch-size", type=int, default=1, help="default: 1, all sizes of the traces")
    parser.add_argument("--policies", default="structured")
    parser.add_argument("--etas", default="0,0.5,1")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--horizons", default="20,50,0", help="0: 2|B||P|")
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--drift", choices=DRIFTS, default=None)
    parser.add_argument("--worlds", default="", help=f"kinds, or all: {', '.join(KINDS)}")
    parser.add_argument("--many", type=int, default=50, help="worlds of each kind")
    parser.add_argument("--gates", action="store_true", help="jobs that a policy must not get stuck in")
    parser.add_argument("--every-default", action="store_true", help="start each workload at each of its sizes")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--walk", action="store_true", help="what the walk over power limits loses and costs")
    parser.add_argument("--details", action="store_true", help="a line for each workload")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    policies, etas = given.policies.split(","), [float(eta) for eta in given.etas.split(",")]
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    rows: list[Row] = []
    sums: dict[str, Any] = {}
    if given.speed:
        sums["speed"] = speed()
        print(" ".join(f"{name} {value:.3g}" for name, value in sums["speed"].items()))
    elif given.gates:
        sums["gates"] = gates(policies, 0.5, seeds, 4 * given.many)
    elif given.worlds:
        for kind in KINDS if given.worlds == "all" else given.worlds.split(","):
            found, against = in_worlds(kind, policies, etas[0], seeds, given.many, 50, given.concurrency)
            rows += found
            sums[kind] = show(f"{kind:6}", found, policies, given.details)
            for policy, (ratio, worse) in against.items():
                sums[kind][policy] |= {"of_sums": ratio, "worse": worse}
                print(f"{'':7}{policy}: {ratio:.3f} of the paper's regret over all worlds, worse in {worse:.0%}")
    else:
        names = given.workloads.split(",") if given.workloads else None
        gpus, least = given.gpus.split(",") if given.gpus else published.gpus(given.traces), given.smallest_batch_size
        pairs = [one for gpu in gpus for one in published.load(given.traces, gpu, names, smallest=least).values()]
        if given.every_default:
            pairs = [replace(pair, default=size) for pair in pairs for size in pair.sizes]
        if given.walk:
            sums["walk"] = walk_table(pairs, etas)
        for eta in () if given.walk else etas:
            found = []
            if given.drift:
                one_of = [
                    partial(under_drift, pair, policies, eta, seeds, given.drift, by) for pair in pairs for by in SHIFTS
                ]
            else:
                horizons = [int(horizon) for horizon in given.horizons.split(",")]
                one_of = [partial(on_traces, pair, policies, eta, seeds, horizons, given.concurrency) for pair in pairs]
            for work in one_of:
                found += work()
            rows += found
            sums[f"eta {eta:g}"] = show(f"eta {eta:g}", found, policies, given.details)
    if given.json:
        given.json.write_text(json.dumps({"summary": sums, "rows": [asdict(row) for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
