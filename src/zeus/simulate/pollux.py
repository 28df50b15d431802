"""A goodput tuner like Pollux (Qiao et al., OSDI 2021), which §6.6 compares Zeus with.

It changes the batch size during a run, to the size with the greatest goodput:

    goodput(b)    = throughput(b) · efficiency(b)
    efficiency(b) = (φ + b0) / (φ + b)         progress per sample at size b, relative to size b0

φ is the gradient noise scale, in samples. It grows during training, so larger batches pay off later. Training starts
at b0 and never uses a smaller size. The tuner ignores energy, so the power limit is the highest.

b0, and φ on the way to the target, come from a run that Pollux's authors published. Throughput, power and real progress
come from the traces of the replayed workload: an epoch at size b covers 1/Epochs(b) of the way to the target.

Their jobs differ from the paper's in some respects, see `MODELS`. Two of the six workloads have no similar job.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from zeus.errors import InputError
from zeus.job import Decision, Ending, Outcome, Phase
from zeus.profile import LimitSlice, PowerProfile
from zeus.simulate.replay import ReplayedRecurrence, ReplayedTrial, draw
from zeus.simulate.traces import rows
from zeus.simulate.traces.csv_tables import read_table
from zeus.simulate.workload import Workload

VALIDATION: Final = ("progress", "iteration", "metric", "grad_sqr", "grad_var")
PLACEMENTS: Final = ("placement", "local_bsz", "step_time", "sync_time")


@dataclass(frozen=True, slots=True)
class Model:
    """A job of Pollux's authors: its folder, b0, and the workload's target in the metric of that job."""

    folder: str
    base: int
    target: float | None  # None: the job has another metric, so the end of its run counts as the target
    higher_is_better: bool = True


MODELS: Final[dict[str, Model]] = {  # the same networks and data as the workloads, except:
    "DeepSpeech2": Model("deepspeech2", 20, 40.0, higher_is_better=False),  # other speech data
    "BERT-QA": Model("bert", 12, 84.0),  # only two points of the noise scale, one after each epoch
    "ResNet-50": Model("imagenet", 200, 0.65),  # another optimizer and learning rate schedule
    "NeuMF": Model("ncf", 256, None),  # the metric is the hit rate, so the whole run is used
}


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """φ on the way to the target, for a job that starts at b0."""

    base: int
    points: tuple[tuple[float, float], ...]  # (share of the way, φ in samples), ascending

    def at(self, done: float) -> float:
        """φ at this share of the way: the last value measured by then, or else the first one.

        >>> NoiseScale(20, ((0.5, 10.0), (1.0, 90.0))).at(0.7)
        10.0
        """
        return next((phi for share, phi in reversed(self.points) if share <= done), self.points[0][1])


def published(root: Path | None = None) -> Path:
    """The folder of Pollux's traces, next to the paper's."""
    return rows.published(root).parent / "pollux_osdi21" / "traces"


def model(workload: str) -> Model:
    """The Pollux job most similar to this workload. Raises InputError if there is none."""
    if workload not in MODELS:
        raise InputError(
            f"pollux on {workload}: no published Pollux job is similar, so its gradient noise scale is unknown. "
            f"Use one of {', '.join(MODELS)}."
        )
    return MODELS[workload]


def noise_scale(workload: str, folder: Path | str | None = None) -> NoiseScale:
    """φ for a workload of the paper, from the run at its base size. Raises InputError if no job is similar."""
    job = model(workload)
    path = Path(folder or published()) / job.folder / f"validation-{job.base}.csv"
    if not path.exists():
        raise InputError(
            f"{path}: no such file. It is part of the Pollux artifact of OSDI 2021 (github.com/petuum/adaptdl, branch "
            "osdi21-artifact, simulator/traces); set ZEUS_DATA to the folder that holds pollux_osdi21/traces."
        )
    points: list[tuple[float, float]] = []
    for cells in read_table(path, VALIDATION):
        progress, _, metric, squared, variance = map(cells.number, VALIDATION)
        if not (progress > 0 and squared > 0 and variance >= 0):
            raise cells.fault("progress and grad_sqr must be above 0, grad_var at least 0")
        points.append((progress, job.base * variance / squared))
        if job.target is not None and (metric >= job.target) == job.higher_is_better:
            break
    if not points:
        raise InputError(f"{path}: no rows. A header and at least one row are needed.")
    end = points[-1][0]
    return NoiseScale(job.base, tuple((progress / end, phi) for progress, phi in points))


def choose(workload: Workload, noise: NoiseScale, done: float) -> int:
    """The size with the greatest goodput at this share of the way. If several are equal, the smallest."""
    phi = noise.at(done)
    sizes = [size for size in workload.sizes if size >= noise.base] or [workload.sizes[-1]]
    # Samples per epoch and φ + b0 are the same for all sizes, so they are left out.
    return min(sizes, key=lambda size: (workload.profiles[size].slices[0].seconds * (phi + size), size))


def replay(workload: Workload, noise: NoiseScale, seed: int, eta: float = 0.5) -> Iterator[ReplayedRecurrence]:
    """Replay recurrences without end. Nothing is learnt between them; only the traced run drawn differs."""
    cost = workload.cost_model(eta)
    for recurrence in count(1):
        runs = {size: draw(workload, seed, recurrence, 1, size) for size in workload.sizes}
        joules = seconds = done = 0.0
        sizes: list[int] = []
        while len(sizes) < workload.max_epochs and done < 1 - 1e-9:
            sizes.append(choose(workload, noise, done))
            epoch, needed = workload.profiles[sizes[-1]].slices[0], runs[sizes[-1]]
            done += 1 / needed if needed else 0.0
            part = 1 - (done - 1) * needed if needed and done > 1 else 1.0  # the last epoch ends at the target
            joules, seconds = joules + part * epoch.joules, seconds + part * epoch.seconds
        ending = Ending.CONVERGED if done >= 1 - 1e-9 else Ending.NOT_CONVERGED
        outcome = Outcome(ending=ending, joules=joules, seconds=seconds, epochs=len(sizes))
        way = ", ".join(f"{size} x {sizes.count(size)}" for size in dict.fromkeys(sizes))
        decision = Decision(sizes[-1], Phase.DEFAULT, f"greatest goodput, epoch by epoch: {way}")
        watts = workload.profiles[sizes[-1]].slices[0].limit_watts
        yield ReplayedRecurrence((ReplayedTrial(decision, watts, outcome, cost.cost(joules, seconds)),))


def on_gpus(workload: Workload, gpus: int, folder: Path | str | None = None) -> Workload:
    """A composite of the workload on one node with several GPUs. Each GPU runs b/gpus samples and waits for the others.

    The slow-down against one GPU comes from Pollux's placements on one node (with other GPUs), at the nearest measured
    local size. Epochs to target are those of the whole batch.
    """
    path = Path(folder or published()) / model(workload.name).folder / "placements.csv"
    steps: dict[str, dict[float, float]] = {}
    for cells in read_table(path, PLACEMENTS):
        steps.setdefault(cells["placement"], {})[cells.number("local_bsz")] = cells.number("step_time")
    both = sorted(set(steps.get("1", {})) & set(steps.get(str(gpus), {})))
    if not both:
        raise InputError(f"{path}: no local batch size was measured on both 1 and {gpus} GPUs of one node.")

    def slower(local: float) -> float:
        near = min(both, key=lambda size: abs(size - local))
        return steps[str(gpus)][near] / steps["1"][near]

    sizes = [size for size in workload.sizes if size % gpus == 0 and size // gpus in workload.profiles]
    if not sizes:
        raise InputError(
            f"{workload.name} on {gpus} GPUs: none of {list(workload.sizes)} divided by {gpus} is a traced size."
        )
    profiles = {}
    for size in sizes:
        factor = slower(size / gpus) / gpus  # the GPUs share the steps of an epoch
        profiles[size] = PowerProfile.of(
            LimitSlice(one.limit_watts * gpus, 1, one.seconds * factor, gpus * one.watts * one.seconds * factor)
            for one in workload.profiles[size // gpus].slices
        )
    return replace(
        workload,
        gpu=f"{gpus} x {workload.gpu}",
        max_watts=gpus * workload.max_watts,
        default=max((size for size in sizes if size <= workload.default), default=sizes[0]),
        runs={size: workload.runs[size] for size in sizes},
        profiles=profiles,
    )
