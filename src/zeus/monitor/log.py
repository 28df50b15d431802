"""The CSV file of `ZeusMonitor(log_file=...)`: one line a window, appended, written when its energy is known."""

from __future__ import annotations

import csv
import os
import threading
from collections import deque
from pathlib import Path

from zeus.errors import InputError
from zeus.monitor.measurement import Measurement


class WindowLog:
    """Appends `start_time,window_name,elapsed_time,gpu0_energy,...`; the times are wall-clock seconds.

    A line waits until its last samples have arrived, so that logging never holds up the training loop; what still
    waits at the end is written then.
    """

    def __init__(self, path: Path, gpu_indices: list[int]) -> None:
        self.pid = os.getpid()  # lines still waiting at a fork are the parent's to write
        self._gpus = gpu_indices
        self._lock = threading.Lock()
        self._waiting: deque[tuple[str, float, Measurement]] = deque()
        header = ["start_time", "window_name", "elapsed_time", *(f"gpu{i}_energy" for i in gpu_indices)]
        try:
            with path.open("r", newline="") as old:
                found = next(csv.reader(old), None)
        except FileNotFoundError:
            found = None
        if found is not None and found != header:
            raise InputError(
                f"{path} was written for other GPUs (its columns are {','.join(found)}; these would be "
                f"{','.join(header)}). Name another log_file; nothing was written."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", newline="", buffering=1)
        self._csv = csv.writer(self._file, lineterminator="\n")
        if found is None:
            self._csv.writerow(header)

    def add(self, key: str, start: float, measurement: Measurement) -> None:
        """Take a window, to be written when its energy is known."""
        self._waiting.append((key, start, measurement))
        self.write()

    def write(self) -> None:
        """Write those at the head of the queue that need no waiting."""
        with self._lock:
            while self._waiting and self._waiting[0][2].is_ready:
                self._write_one()

    def _write_one(self) -> None:
        key, start, measurement = self._waiting.popleft()
        energy = measurement.gpu_energy
        self._csv.writerow([start, key, measurement.time, *(energy.get(i, "") for i in self._gpus)])

    def close(self) -> None:
        """Write what still waits."""
        with self._lock:
            while self._waiting:
                self._write_one()
            self._file.close()
