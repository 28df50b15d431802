"""Draws docs/assets/belief.svg: what the structured policy believes after 1, 3 and 10 recurrences of a real job.

python docs/assets/make_belief.py      # needs matplotlib, and the published traces in ZEUS_DATA or ../shared/data
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

import matplotlib.pyplot as plt

from zeus.policy.registry import find_policy
from zeus.simulate.limit_plans import WalkProfiling
from zeus.simulate.replay import SimulatedJob, job_of
from zeus.simulate.traces import published
from zeus.simulate.traces.rows import published as folder

HERE = Path(__file__).parent
AFTER = (1, 3, 10)


def main() -> None:
    job = published.load(folder(HERE.parents[1]), "V100", ["DeepSpeech2"], smallest=1)["DeepSpeech2"]
    truth = {}
    for size in job.sizes:
        epoch, runs = job.best_epoch(size, 0.5), [n for n in job.runs[size] if n is not None]
        if len(runs) == len(job.runs[size]):
            truth[size] = fmean(runs) * job.cost_model(0.5).cost(epoch.joules, epoch.seconds)
    unit = min(truth.values())
    world = SimulatedJob(
        job, find_policy("structured"), job_of(job, eta_knob=0.5, mab_seed=1), 1, WalkProfiling(job, 0.5)
    )
    figure, axes = plt.subplots(1, len(AFTER), figsize=(10, 3), sharey=True)
    recurrence = 0
    for axis, after in zip(axes, AFTER, strict=True):
        while recurrence < after:
            recurrence += 1
            one = world.submit(recurrence)
            while world.goes_on(one):
                pass
        state = world._state
        epochs, costs = state.lessons.belief, state.epoch_costs(job.gpu)
        mean = [math.exp(state.log_cost(arm, job.gpu)) / unit for arm in range(len(job.sizes))]
        wide = [math.exp(math.sqrt(epochs.var[arm] + costs.var[arm])) for arm in range(len(job.sizes))]
        axis.plot(job.sizes, mean, color="#1f6f8b")
        low, high = [m / w for m, w in zip(mean, wide, strict=True)], [m * w for m, w in zip(mean, wide, strict=True)]
        axis.fill_between(job.sizes, low, high, color="#1f6f8b", alpha=0.2)
        axis.plot(list(truth), [cost / unit for cost in truth.values()], "o", color="black", markersize=3)
        best = state.best(job.gpu, list(range(len(job.sizes))))
        axis.plot(job.sizes[best], mean[best], "o", markersize=11, markerfacecolor="none", color="#c0392b")
        axis.set(xscale="log", yscale="log", ylim=(0.5, 8), title=f"after {after} recurrence{'s' * (after > 1)}")
        axis.set_xticks(job.sizes, [str(size) for size in job.sizes], fontsize=6, rotation=60)
        axis.minorticks_off()
    axes[0].set_ylabel("cost over the best")
    figure.tight_layout()
    figure.savefig(HERE / "belief.svg")


if __name__ == "__main__":
    main()
