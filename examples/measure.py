"""Measure anything: two parts of a program, one inside the other. Nothing is changed.

Run it on a virtual GPU:

ZEUS_GPU='virtual:v100?clock=virtual' python examples/measure.py
"""

from zeus.device.virtual import step
from zeus.monitor import ZeusMonitor

monitor = ZeusMonitor()  # all visible GPUs; ZeusMonitor(gpu_indices=[0]) watches one


def work(batches: int, batch_size: int) -> None:
    """Your own code. On a virtual GPU, `step` takes its place."""
    for _ in range(batches):
        step(monitor.gpus.values(), batch_size)


monitor.begin_window("everything")
for batch_size in (32, 128, 512):
    monitor.begin_window("one size")
    work(51_200 // batch_size, batch_size)
    used = monitor.end_window("one size")
    print(f"batch size {batch_size:3}: {used.total_energy:6.0f} J in {used.time:.1f} s, {used.error:.0f} J uncertain")
whole = monitor.end_window("everything")
print(f"everything: {whole.total_energy:.0f} J, {whole.total_energy / whole.time:.0f} W on average")
