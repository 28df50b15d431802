"""Measures the error of the energy of a window, on a real GPU or else on a simulated sensor like that of an H200.

    ZEUS_READ_ONLY=1 python benchmarks/gpu_windows.py [--quick] [--simulate]

Windows of 20 ms to 5 s are measured under a steady and under a pulsed load. They are compared with the energy counter
of the card over the whole phase, which is so long that the counter's step of 100 ms does not matter. The same run also
measures the naive way, the difference of two counter readings, on other windows. No setting of the card is changed.

Steady: the load never pauses, and windows begin at random times. Truth = average power x length of the window.
Pulsed: the load runs for about the length of the window and then pauses. Each window is one pulse. Truth = its share
of (energy of the phase - idle power x pauses).
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import percentile
from zeus.device.find import find
from zeus.device.gpu import Gpu
from zeus.monitor import ZeusMonitor

LENGTHS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


@dataclass
class Load:
    """A piece of GPU work that can be queued many times."""

    name: str
    queue: Callable[[], object]
    seconds: float  # of one piece
    wait: Callable[[], object]

    def run(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds / self.seconds))):
            self.queue()
        self.wait()


# ---------------------------------------------------------------------------------------------------- real hardware


def loads() -> list[Load]:
    import torch

    half = [torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    single = [torch.randn(2048, 2048, device="cuda") for _ in range(3)]
    big = [torch.empty(1 << 28, device="cuda", dtype=torch.uint8) for _ in range(2)]
    torch.backends.cuda.matmul.allow_tf32 = False
    work = {
        "copy": lambda: big[1].copy_(big[0]),  # memory-bound, well below the power limit
        "fp32": lambda: torch.mm(single[0], single[1], out=single[2]),  # compute-bound, below the limit
        "bf16": lambda: torch.mm(half[0], half[1], out=half[2]),  # at the limit: the card throttles itself
    }
    found = []
    for name, queue in work.items():
        for _ in range(20):
            queue()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(400):
            queue()
        torch.cuda.synchronize()
        found.append(Load(name, queue, (time.perf_counter() - begin) / 400, torch.cuda.synchronize))
    return found


def counter_truth(gpu: Gpu) -> tuple[float, float]:
    """Read the counter just as it steps: the time, to a few milliseconds, and the joules."""
    before = gpu.energy()
    while True:
        joules = gpu.energy()
        moment = time.monotonic()
        if joules != before:
            return moment, joules


def steady(monitor: ZeusMonitor, gpu: Gpu, load: Load, plan: dict[float, int]) -> dict[str, Any]:
    over = threading.Event()

    def keep_busy() -> None:
        while not over.is_set():
            load.run(0.2)

    worker = threading.Thread(target=keep_busy)
    worker.start()
    time.sleep(1.5)
    polled = 0.0
    for _ in range(50):
        polled += gpu.power() / 50
        time.sleep(0.02)
    t0, j0 = counter_truth(gpu)
    time.sleep(0.3)
    luck = random.Random(0)
    measured: list[tuple[float, Any]] = []
    naive: list[tuple[float, float, float]] = []
    turns = [length for length, count in plan.items() for _ in range(count)]
    luck.shuffle(turns)
    for length in turns:
        time.sleep(luck.uniform(0.0, 0.05))
        monitor.begin_window("w", sync_execution=False)
        time.sleep(length)
        measured.append((length, monitor.end_window("w", sync_execution=False)))
    for length in turns[::2]:
        time.sleep(luck.uniform(0.0, 0.05))
        a, ja = time.monotonic(), gpu.energy()
        time.sleep(max(0.0, length - (time.monotonic() - a)))
        jb, b = gpu.energy(), time.monotonic()
        naive.append((length, b - a, jb - ja))
    t1, j1 = counter_truth(gpu)
    over.set()
    worker.join()
    watts = (j1 - j0) / (t1 - t0)
    rows = {}
    for length in plan:
        ours = [(m.joules / (m.seconds * watts) - 1, m.error / (m.seconds * watts)) for n, m in measured if n == length]
        theirs = [joules / (seconds * watts) - 1 for n, seconds, joules in naive if n == length]
        rows[length] = summary(ours, theirs)
    return {"load": load.name, "kind": "steady", "watts": watts, "polled": polled, "seconds": t1 - t0, "rows": rows}


def warm_idle(gpu: Gpu, load: Load) -> float:
    """Idle watts between pulses. A card that has just worked draws a little more than a cold one."""
    load.run(0.5)
    time.sleep(0.1)
    t0, j0 = counter_truth(gpu)
    time.sleep(1.5)
    t1, j1 = counter_truth(gpu)
    return (j1 - j0) / (t1 - t0)


def pulsed(monitor: ZeusMonitor, gpu: Gpu, load: Load, length: float, count: int) -> dict[str, Any]:
    luck = random.Random(1)
    idle = warm_idle(gpu, load)

    def phase(use: Callable[[], None]) -> tuple[list[tuple[float, float]], float, float]:
        """Run one phase. Return its pulses, its joules and its seconds of pause."""
        load.run(length)
        time.sleep(0.3)
        t0, j0 = counter_truth(gpu)
        pulses = []
        for _ in range(count):
            time.sleep(luck.uniform(0.06, 0.16))
            begin = time.monotonic()
            use()
            pulses.append((begin, time.monotonic()))
        time.sleep(0.3)
        t1, j1 = counter_truth(gpu)
        return pulses, j1 - j0, (t1 - t0) - sum(e - b for b, e in pulses)

    measured: list[Any] = []
    naive: list[float] = []

    def window() -> None:
        monitor.begin_window("p", sync_execution=False)
        load.run(length)
        measured.append(monitor.end_window("p", sync_execution=False))

    def difference() -> None:
        before = gpu.energy()
        load.run(length)
        naive.append(gpu.energy() - before)

    def errors(pulses: list[tuple[float, float]], joules: float, pause: float) -> list[float]:
        share = (joules - idle * pause) / sum(e - b for b, e in pulses)
        return [share * (e - b) for b, e in pulses]

    truth = errors(*phase(window))
    ours = [(m.joules / t - 1, m.error / t) for m, t in zip(measured, truth, strict=True)]
    truth = errors(*phase(difference))
    theirs = [j / t - 1 for j, t in zip(naive, truth, strict=True)]
    return summary(ours, theirs)


def summary(ours: list[tuple[float, float]], theirs: list[float]) -> dict[str, float]:
    sizes = [abs(e) for e, _ in ours]
    return {
        "windows": len(ours),
        "bias": 100 * sum(e for e, _ in ours) / len(ours),
        "mean": 100 * sum(sizes) / len(sizes),
        "p95": 100 * percentile(sizes, 0.95),
        "bound": 100 * sum(b for _, b in ours) / len(ours),
        "holds": 100 * sum(abs(e) <= b for e, b in ours) / len(ours),
        "naive_mean": 100 * sum(map(abs, theirs)) / max(1, len(theirs)),
        "naive_p95": 100 * percentile(list(map(abs, theirs)), 0.95) if theirs else 0.0,
    }


def epochs(monitor: ZeusMonitor, gpu: Gpu, count: int = 30) -> dict[str, float]:
    """Compare the sum of back-to-back epochs of a small network, about 0.25 s each, with the whole."""
    import torch

    net = torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(4096, 4096), torch.nn.ReLU())]).cuda()
    best = torch.optim.SGD(net.parameters(), lr=1e-3)
    data = torch.randn(1024, 4096, device="cuda")

    def step() -> None:
        best.zero_grad(set_to_none=True)
        net(data).square().mean().backward()
        best.step()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    steps = max(1, round(0.25 / ((time.perf_counter() - begin) / 20)))
    monitor.begin_window("whole")
    parts = []
    for _ in range(count):
        monitor.begin_window("epoch")
        for _ in range(steps):
            step()
        parts.append(monitor.end_window("epoch"))
    whole = monitor.end_window("whole")
    summed = sum(p.joules for p in parts)
    naive_sum, first = 0.0, gpu.energy()
    for _ in range(count):
        before = gpu.energy()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        naive_sum += gpu.energy() - before
    naive_whole = gpu.energy() - first
    t0, j0 = counter_truth(gpu)
    for _ in range(count):
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    t1, j1 = counter_truth(gpu)
    return {
        "epochs": count,
        "seconds_per_epoch": whole.seconds / count,
        "sum_joules": summed,
        "whole_joules": whole.joules,
        "sum_over_whole_percent": 100 * (summed / whole.joules - 1),
        "against_counter_percent": 100 * (whole.joules / whole.seconds / ((j1 - j0) / (t1 - t0)) - 1),
        "naive_sum_joules": naive_sum,
        "naive_whole_joules": naive_whole,
        "naive_sum_over_whole_percent": 100 * (naive_sum / naive_whole - 1),
        "smallest_epoch_joules": min(p.joules for p in parts),
        "largest_epoch_joules": max(p.joules for p in parts),
    }


def cost_of_a_window(monitor: ZeusMonitor, count: int = 5000) -> dict[str, float]:
    spent = []
    for _ in range(count):
        begin = time.perf_counter()
        monitor.begin_window("cost", sync_execution=False)
        monitor.end_window("cost", sync_execution=False)
        spent.append((time.perf_counter() - begin) * 1e6)
        if len(spent) % 100 == 0:
            time.sleep(0.001)
    return {"mean_us": sum(spent) / count, "p50_us": percentile(spent, 0.5), "p99_us": percentile(spent, 0.99)}


def cost_of_the_thread(seconds: float = 20.0) -> float:
    """Share of one core, in percent, that the thread of a monitor uses while the process is idle."""
    monitor = ZeusMonitor(gpu_indices=[0])
    time.sleep(0.5)
    begin = time.process_time()
    time.sleep(seconds)
    used = time.process_time() - begin
    monitor.close()
    return 100 * used / seconds


def on_hardware(quick: bool) -> dict[str, Any]:
    gpu = find([0])[0]
    result: dict[str, Any] = {"gpu": gpu.spec.name, "capabilities": sorted(gpu.spec.capabilities)}
    result["thread_percent_of_a_core"] = cost_of_the_thread(5.0 if quick else 30.0)
    work = {load.name: load for load in loads()}
    monitor = ZeusMonitor(gpu_indices=[0])
    time.sleep(1.0)
    t0, j0 = counter_truth(gpu)
    time.sleep(3.0)
    t1, j1 = counter_truth(gpu)
    result["idle_watts"] = (j1 - j0) / (t1 - t0)
    result["begin_end"] = cost_of_a_window(monitor)
    naive = []
    for _ in range(100):
        begin = time.perf_counter()
        gpu.energy()
        gpu.energy()
        naive.append((time.perf_counter() - begin) * 1e6)
    result["naive_begin_end_us"] = sum(naive) / len(naive)
    plan = dict(zip(LENGTHS, (20, 20, 15, 10, 6, 4, 2) if quick else (60, 60, 40, 25, 12, 6, 2), strict=True))
    tell_head(result)
    result["steady"] = [tell_part(steady(monitor, gpu, work[name], plan)) for name in ("copy", "fp32", "bf16")]
    counts = dict(zip(LENGTHS, (20, 20, 15, 10, 6, 3, 1) if quick else (60, 60, 40, 25, 12, 6, 2), strict=True))
    result["pulsed"] = [
        tell_part(
            {
                "load": name,
                "kind": "pulsed",
                "rows": {n: pulsed(monitor, gpu, work[name], n, c) for n, c in counts.items()},
            }
        )
        for name in ("copy", "bf16")
    ]
    result["epochs"] = epochs(monitor, gpu)
    monitor.close()
    return result


# ---------------------------------------------------------------------------------------------------- no hardware


def simulated(quick: bool) -> dict[str, Any]:
    """The same measurements on a simulated sensor, whose truth is known exactly."""
    from support.sensors import SensedGpu, Sensors
    from zeus.device.virtual import VirtualMachine

    rows: dict[str, dict[float, Any]] = {"steady": {}, "pulsed": {}}
    luck = random.Random(0)
    for kind, table in rows.items():
        for length in LENGTHS:
            machine = VirtualMachine.in_memory("h200")
            gpu = SensedGpu(machine.gpus[0], Sensors(noise=0.005, jitter=0.002, missed=0.02))
            monitor = ZeusMonitor(gpus={0: gpu})
            ours, theirs = [], []
            for _ in range(20 if quick else 100):
                if kind == "steady":
                    gpu.run(luck.uniform(0.2, 0.3), 480.0)
                else:
                    machine.clock.sleep(luck.uniform(0.06, 0.16))
                counter, truth = gpu.energy(), machine.gpus[0].energy()
                monitor.begin_window("w")
                gpu.run(length, 480.0)
                measured = monitor.end_window("w")
                truth = machine.gpus[0].energy() - truth
                theirs.append((gpu.energy() - counter) / truth - 1)
                if kind == "steady":
                    gpu.run(0.2, 480.0)
                ours.append((measured.joules / truth - 1, measured.error / truth))
            table[length] = summary(ours, theirs)
            monitor.close()
    result: dict[str, Any] = {"gpu": "simulated sensor of an H200 (no GPU here)"}
    tell_head(result)
    for kind, table in rows.items():
        result[kind] = [tell_part({"load": "480 W", "kind": kind, "rows": table})]
    return result


def tell_head(result: dict[str, Any]) -> None:
    print(f"GPU: {result['gpu']}; Python {platform.python_version()}")
    print("error of a window against the long-run truth, in percent; 'holds': how often the stated bound covers it")
    head = f"{'load':16}{'window':>8}{'n':>5}{'bias':>8}{'mean':>8}{'p95':>8}{'bound':>8}{'holds':>7}"
    print(head + f"{'naive mean':>12}{'naive p95':>11}")


def tell_part(part: dict[str, Any]) -> dict[str, Any]:
    """Print one part as soon as it is done, so that an interrupted run still shows it."""
    for length, r in part["rows"].items():
        name = f"{part['kind']} {part['load']}"
        print(
            f"{name:16}{length * 1000:6.0f}ms{r['windows']:5}{r['bias']:+8.2f}{r['mean']:8.2f}"
            f"{r['p95']:8.2f}{r['bound']:8.2f}{r['holds']:6.0f}%{r['naive_mean']:12.2f}{r['naive_p95']:11.2f}",
            flush=True,
        )
    return part


def tell_rest(result: dict[str, Any]) -> None:
    for key in ("idle_watts", "thread_percent_of_a_core", "begin_end", "naive_begin_end_us", "epochs"):
        if key in result:
            print(f"{key}: {json.dumps(result[key])}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer windows")
    parser.add_argument("--simulate", action="store_true", help="use a simulated sensor even where there is a GPU")
    args = parser.parse_args()
    try:
        import torch

        real = torch.cuda.is_available() and not args.simulate
    except ImportError:
        real = False
    result = on_hardware(args.quick) if real else simulated(args.quick)
    tell_rest(result)


if __name__ == "__main__":
    main()
