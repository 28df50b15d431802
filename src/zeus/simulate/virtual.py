"""Workloads without traces: epochs on a virtual GPU, and a parametric Epochs(b) with noise between runs."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

from zeus.device.virtual.physics import Card, Load, epoch
from zeus.errors import InputError
from zeus.profile import LimitSlice, PowerProfile
from zeus.simulate import card_file
from zeus.simulate.workload import Workload
from zeus.simulate.workload_file import VirtualCurve, WorkloadSpec, find, table_1

RUNS = 10  # for each batch size: the most that the published traces have
STEP_WATTS = 25.0  # between power limits, as in the paper


def load(
    gpu: str, names: Iterable[str] | None = None, settings: Mapping[str, WorkloadSpec] | None = None
) -> dict[str, Workload]:
    """The named workloads on this virtual GPU, such as `v100` or a TOML file. The default: all with a virtual model.

    >>> load("v100", ["NeuMF"])["NeuMF"].limits
    (250.0, 225.0, 200.0, 175.0, 150.0, 125.0, 100.0)
    """
    known = table_1() if settings is None else settings
    if names is None:
        names = [name for name, setting in known.items() if setting.virtual is not None]
    workloads = {name: _workload(name, gpu, known[name]) for name in (find(asked, known) for asked in names)}
    if not workloads:
        raise InputError(f"none of {', '.join(known)} has a [NAME.virtual] table. Add one to the workloads file.")
    return workloads


def profile(card: Card, work: Load, size: int) -> PowerProfile:
    """The modelled profile of one epoch of this size at each power limit."""
    epochs = [(watts, epoch(card, work, size, watts)) for watts in _limits(card)]
    return PowerProfile.of([LimitSlice(watts, 1, one.seconds, one.joules) for watts, one in epochs])


def _workload(name: str, gpu: str, setting: WorkloadSpec) -> Workload:
    curve = setting.virtual
    if curve is None:
        raise InputError(f"{name} has no [{name}.virtual] table. Add one to the workloads file, or give --traces DIR.")
    found = card_file.find(gpu)
    card, work = found.card, found.load(curve.load)
    profiles = {size: profile(card, work, size) for size in curve.batch_sizes}
    default = max((size for size in curve.batch_sizes if size <= setting.default), default=curve.batch_sizes[0])
    runs = {size: _runs(name, curve, size) for size in curve.batch_sizes}
    return Workload(name, f"virtual:{found.name}", card.max_watts, setting.max_epochs, default, runs, profiles)


def _limits(card: Card) -> list[float]:
    steps = int((card.max_watts - card.min_watts) // STEP_WATTS)
    return [card.max_watts - STEP_WATTS * i for i in range(steps + 1)]


def _runs(name: str, curve: VirtualCurve, size: int) -> tuple[int | None, ...]:
    """The epochs of each run. They are the same on every GPU."""
    if not curve.least <= size <= curve.most:
        return (None,) * RUNS
    luck, mean = random.Random(f"{name}:{size}"), curve.mean_epochs(size)
    return tuple(max(1, round(mean * math.exp(luck.gauss(0.0, curve.noise)))) for _ in range(RUNS))
