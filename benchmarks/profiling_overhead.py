"""Measures what profiling power limits adds to a run, for both plans of the profiler: the walk and the paper's (§6.5).

    python benchmarks/profiling_overhead.py                 both tables
    python benchmarks/profiling_overhead.py --eta 1         with another η

Each run trains at the default batch size on a virtual V100 with a virtual clock. The real `GlobalPowerLimitOptimizer`
profiles, and a real keeper sets the limits. The card's own counter and clock measure the whole run. The first table has
the two workloads of §6.5, played from the published traces: a step takes epoch time / steps per epoch, and draws the
average power of the trace at the limit in force. The second has the six workloads as the virtual V100 models them.

    observe   profiles, then goes back to the highest limit; compared with a run that stays there (mode "off")
    optimize  profiles, then keeps the best limit; compared with a run that knows its profile from the start

Steps have no noise, and Python's own time does not count (for that, see loader_overhead.py). Once profiling is over,
the other steps of an epoch run as one.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness import TRACES
from zeus import settings
from zeus.cost import Use
from zeus.device.find import find
from zeus.device.virtual import presets
from zeus.device.virtual.machine import VirtualGpu
from zeus.device.virtual.physics import operate
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer, ZeusCost
from zeus.profile import PowerProfile
from zeus.settings import Mode, ProfilingPlan
from zeus.simulate.traces.published import load
from zeus.simulate.workload_file import WorkloadSpec, table_1

CARD = "v100"
MEASURED = {"DeepSpeech2": (0.01, 0.03), "ShuffleNet-v2": (-2.8, 0.6)}  # energy and time added, in percent (§6.5)


@dataclass(frozen=True)
class Training:
    """A whole run to train: its length, and what one step takes and draws at each limit."""

    name: str
    epochs: int
    steps_per_epoch: int
    step: Callable[[float], tuple[float, float]]  # limit -> seconds, watts


@dataclass(frozen=True)
class Trained:
    """A run that was trained."""

    use: Use
    profiling_seconds: float
    best: float | None
    profile: PowerProfile | None


@dataclass(frozen=True)
class Overhead:
    """What profiling adds to a run, in percent."""

    workload: str
    plan: str
    limits: int  # that were measured
    seconds: float  # from the first step until the limit is chosen
    run_seconds: float  # of the run that stays at the highest limit
    best: float  # the limit that was chosen
    observe_energy: float
    observe_time: float
    optimize_energy: float
    optimize_time: float


def train(training: Training, folder: Path, eta: float, mode: Mode, profiling: ProfilingPlan, file: Path) -> Trained:
    """Train a run on a card of its own."""
    state = {"ZEUS_VIRTUAL_STATE": str(folder / "cards"), "ZEUS_KEEPER_STATE": str(folder / "keeper")}
    folder.mkdir()
    with settings.changed({"ZEUS_GPU": f"virtual:{CARD}?clock=virtual", "ZEUS_KEEPER": "private", **state}):
        (gpu,) = find().values()
        assert isinstance(gpu, VirtualGpu)
        optimizer = GlobalPowerLimitOptimizer(
            ZeusMonitor(), ZeusCost(eta), mode=mode, profile_path=file, profiling=profiling
        )
        chosen_at = 0.0
        optimizer.on_train_begin()
        for _ in range(training.epochs):
            optimizer.on_epoch_begin()
            left = training.steps_per_epoch
            while left:
                count = 1 if optimizer.is_profiling else left
                seconds, watts = training.step(gpu.limit())
                gpu.machine.run([0], count * seconds, watts)
                left -= count
                if count == 1:
                    optimizer.on_step_end()
                    chosen_at = chosen_at if optimizer.is_profiling else chosen_at or gpu.clock.now()
            optimizer.on_epoch_end()
        optimizer.on_train_end()
        if optimizer.is_profiling or (mode is not Mode.OFF and optimizer.best_limit is None):
            raise SystemExit(f"{training.name}: profiling did not end: {optimizer.why_not}")
        return Trained(Use(gpu.energy(), gpu.clock.now()), chosen_at, optimizer.best_limit, optimizer.profile)


def overheads(training: Training, eta: float) -> Iterable[Overhead]:
    """The overhead of each plan in this training."""
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        off = train(training, here / "off", eta, Mode.OFF, ProfilingPlan.WALK, here / "none.json")
        for plan in ProfilingPlan:
            file = here / f"{plan}.json"
            observed = train(training, here / f"{plan}-observe", eta, Mode.OBSERVE, plan, here / f"{plan}-observe.json")
            optimized = train(training, here / f"{plan}-optimize", eta, Mode.OPTIMIZE, plan, file)
            known = train(training, here / f"{plan}-known", eta, Mode.OPTIMIZE, plan, file)
            assert optimized.profile is not None and optimized.best is not None
            yield Overhead(
                training.name,
                str(plan),
                len(optimized.profile.slices),
                optimized.profiling_seconds,
                off.use.seconds,
                optimized.best,
                *added(observed.use, off.use),
                *added(optimized.use, known.use),
            )


def added(use: Use, to: Use) -> tuple[float, float]:
    """Energy and time added to another run, in percent."""
    return 100 * (use.joules / to.joules - 1), 100 * (use.seconds / to.seconds - 1)


def from_traces(traces: Path) -> list[Training]:
    """The two workloads of §6.5, from the traces."""
    found = []
    for name, workload in load(traces, CARD, MEASURED).items():
        size, steps = workload.default, steps_per_epoch(table_1()[name], workload.default)
        profile, epochs = workload.profiles[size], round(workload.epochs_charged(size))

        def step(limit: float, profile: PowerProfile = profile, steps: int = steps) -> tuple[float, float]:
            one = profile.at(limit)
            return one.seconds / steps, one.watts

        found.append(Training(name, epochs, steps, step))
    return found


def modelled() -> list[Training]:
    """The six workloads of Table 1, as the virtual card models them."""
    found = []
    for name, setting in table_1().items():
        assert setting.virtual is not None
        card, work, size = presets.card(CARD), presets.load(CARD, setting.virtual.load), setting.default

        def step(limit: float, card=card, work=work, size=size) -> tuple[float, float]:  # type: ignore[no-untyped-def]
            done = operate(card, work, size, limit)
            return done.seconds, done.watts

        epochs = max(1, round(setting.virtual.mean_epochs(size)))
        found.append(Training(name, epochs, steps_per_epoch(setting, size), step))
    return found


def steps_per_epoch(setting: WorkloadSpec, size: int) -> int:
    assert setting.virtual is not None
    return math.ceil(presets.load(CARD, setting.virtual.load).samples_per_epoch / size)


def table(rows: Iterable[Overhead]) -> str:
    lines = ["workload       plan   limits  profiling    run      chosen   observe: J, s        optimize: J, s"]
    for row in rows:
        lines.append(
            f"{row.workload:14} {row.plan:6} {row.limits:5}  {row.seconds:7.1f} s {row.run_seconds:9.0f} s  "
            f"{row.best:4.0f} W  {row.observe_energy:+8.4f} {row.observe_time:+8.4f} %  "
            f"{row.optimize_energy:+8.4f} {row.optimize_time:+8.4f} %"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder of the published traces")
    parser.add_argument("--eta", type=float, default=0.5, help="η of Equation 2")
    given = parser.parse_args()
    for title, trainings in (("traces", from_traces(given.traces)), ("model", modelled())):
        rows = [row for one in trainings for row in overheads(one, given.eta)]
        print(f"{'Published traces' if title == 'traces' else 'Virtual V100'}, eta = {given.eta:g}")
        print(table(rows), flush=True)
        if title == "traces":
            for name, (joules, seconds) in MEASURED.items():
                print(f"{name:14} as the paper measured it (§6.5): {joules:+g} % energy, {seconds:+g} % time")
            print()


if __name__ == "__main__":
    main()
