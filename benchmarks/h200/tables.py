"""Makes the simulator's traces of what `train.py` measured, and prints what they say about batch sizes and policies.

    python benchmarks/h200/tables.py [--epochs benchmarks/h200/traces/epochs.csv] [--seeds 100] [--recurrences 40]

Writes summary_train.csv and summary_power_h200.csv beside epochs.csv. Then it prints, for each workload, energy, time
and cost to the target by batch size, and the regret of both policies from every default batch size.
"""

from __future__ import annotations

import argparse
import csv
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from workloads import TASKS

from zeus.cost import CostModel
from zeus.simulate import regret
from zeus.simulate.results import charged
from zeus.simulate.traces.published import TRAINING, load
from zeus.simulate.traces.rows import POWER_COLUMNS, TRAINING_COLUMNS

HERE = Path(__file__).parent
GPU, LIMIT_WATTS, ETA = "h200", 700, 0.5  # the limit found on the card, which was never changed


@dataclass(frozen=True)
class Run:
    """One training run, its epochs added up."""

    epochs: int
    reached: bool
    joules: float
    error_joules: float  # the bounds of all epochs added up, as if all were off to the same side
    seconds: float


def read(path: Path) -> dict[str, dict[int, dict[int, Run]]]:
    """Runs by task, batch size and seed."""
    rows: dict[tuple[str, int, int], list[dict[str, str]]] = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            rows[row["task"], int(row["batch_size"]), int(row["seed"])].append(row)
    found: dict[str, dict[int, dict[int, Run]]] = defaultdict(lambda: defaultdict(dict))
    for (task, size, seed), some in sorted(rows.items()):
        joules, error, seconds = (
            sum(float(row[name]) for row in some) for name in ("joules", "error_joules", "seconds")
        )
        reached = TASKS[task].reached(float(some[-1]["metric"]))
        found[task][size][seed] = Run(len(some), reached, joules, error, seconds)
    return found


def write_traces(runs: dict[str, dict[int, dict[int, Run]]], folder: Path) -> None:
    """An epoch of a batch size is the mean over all epochs of its runs."""
    training, power = [], []
    for task, sizes in runs.items():
        setting = TASKS[task]
        for size, seeds in sizes.items():
            key = (setting.dataset, setting.network, size, "adamw")
            rate = f"{setting.learning_rate(size):.6g}"
            for seed, run in seeds.items():
                training.append((*key, rate, seed + 1, setting.target, run.epochs if run.reached else "nan"))
            epochs = sum(run.epochs for run in seeds.values())
            joules, seconds = (sum(getattr(run, name) for run in seeds.values()) for name in ("joules", "seconds"))
            power.append((*key, LIMIT_WATTS, f"{seconds / epochs:.6f}", f"{joules / seconds:.3f}"))
    for name, columns, lines in (
        (TRAINING, TRAINING_COLUMNS, training),
        (f"summary_power_{GPU}.csv", POWER_COLUMNS, power),
    ):
        with (folder / name).open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(lines)


def by_size(runs: dict[str, dict[int, dict[int, Run]]]) -> None:
    """Energy, time and cost to the target. A run that misses it has no such number."""
    cost = CostModel(ETA, LIMIT_WATTS)
    for task, sizes in runs.items():
        print(f"\n{task}: mean ± standard deviation of the runs that reached {TASKS[task].target:g}")
        print("| batch size | reached | epochs | energy (J) | bound (J) | time (s) | power (W) | cost (J) |")
        print("|---:|---:|---:|---:|---:|---:|---:|---:|")
        means: dict[str, dict[int, float]] = {"energy": {}, "time": {}, "cost": {}}
        for size, seeds in sizes.items():
            good = [run for run in seeds.values() if run.reached]
            joules, seconds = ([getattr(run, name) for run in good] for name in ("joules", "seconds"))
            costs = [cost.cost(run.joules, run.seconds) for run in good]
            watts = sum(run.joules for run in seeds.values()) / sum(run.seconds for run in seeds.values())
            cells = (
                f"{fmean(run.epochs for run in good):.1f}" if good else "",
                _spread(joules),
                f"{fmean(run.error_joules for run in good):.0f}" if good else "",
                _spread(seconds, 2),
                f"{watts:.0f}",
                _spread(costs),
            )
            print(f"| {size} | {len(good)} of {len(seeds)} | " + " | ".join(cells) + " |")
            if len(good) == len(seeds):
                for name, values in (("energy", joules), ("time", seconds), ("cost", costs)):
                    means[name][size] = fmean(values)
        best = (f"{name} {min(some, key=some.__getitem__)}" for name, some in means.items())
        print("Best size of those that always reached it: " + ", ".join(best) + ".")


def regrets(folder: Path, seeds: int, recurrences: int) -> None:
    """Regret of the first recurrences, in units of the cost of the best choice, from every default batch size."""
    print(f"\nRegret of {recurrences} recurrences / cost of one at the best size, mean of {seeds} seeds, eta {ETA:g}")
    print("| workload | default | cost at default / best | paper | structured | always the default |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, workload in load(folder, GPU).items():
        for size in workload.sizes:
            one = replace(workload, default=size)
            least = regret.optimum(one, ETA)
            usual = one.cost_model(ETA).of(one.expected(size, LIMIT_WATTS)) / least
            shown = f"{usual:.2f}" if one.always_converges(size) else "misses"
            means = []
            for policy in ("paper", "structured", "default"):
                sums = []
                for seed in range(seeds):
                    past = charged(one, policy, seed, eta=ETA, recurrences=recurrences)
                    sums.append(regret.cumulative([r.cost for r in past], least) / least)
                means.append(f"{fmean(sums):.2f} ± {stdev(sums) / seeds**0.5:.2f}")
            print(f"| {name} | {size} | {shown} | " + " | ".join(means) + " |", flush=True)


def _spread(values: list[float], digits: int = 0) -> str:
    if not values:
        return "not reached"
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=Path, default=HERE / "traces" / "epochs.csv")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--recurrences", type=int, default=40)
    options = parser.parse_args()
    runs = read(options.epochs)
    folder = options.epochs.parent
    write_traces(runs, folder)
    by_size(runs)
    regrets(folder, options.seeds, options.recurrences)


if __name__ == "__main__":
    main()
