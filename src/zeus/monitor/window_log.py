"""The CSV file of `ZeusMonitor(log_file=...)`. One line per window is appended once its energy is known."""

from __future__ import annotations

import csv
import logging
import threading
from collections import deque
from contextlib import ExitStack, suppress
from pathlib import Path

from zeus.errors import InputError
from zeus.files import locked
from zeus.fork import renew_after_fork
from zeus.monitor.measurement import Measurement

log = logging.getLogger(__name__)


class WindowLog:
    """Appends `start_time,window_name,elapsed_time,gpu0_energy,...`. The times are wall-clock seconds.

    A line waits until its last samples have arrived, so that logging never delays the training loop. Lines that still
    wait at the end are written then. If the disk is full, lines are lost but the training goes on.
    """

    def __init__(self, path: Path, gpu_indices: list[int]) -> None:
        self._path = path
        self._gpus = gpu_indices
        self._lock = threading.RLock()  # garbage collection may close the log in the middle of a write
        self._waiting: deque[tuple[str, float, Measurement]] = deque()
        self._failed = False
        header = ["start_time", "window_name", "elapsed_time", *(f"gpu{i}_energy" for i in gpu_indices)]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+", newline="", buffering=1)
        except OSError as why:
            raise InputError(
                f"log_file={str(path)!r} cannot be opened: {why.strerror}. Give a file that can be written."
            ) from why
        try:
            with ExitStack() as stack:
                with suppress(OSError):  # several ranks may start the same file: one writes the header
                    stack.enter_context(locked(self._file.fileno()))
                self._file.seek(0)
                found = next(csv.reader(self._file), None)
                if found is not None and found != header:
                    raise InputError(
                        f"{path} was written for other GPUs: its columns are {','.join(found)}, but this monitor needs "
                        f"{','.join(header)}. Nothing was written. Give another log_file."
                    )
                self._csv = csv.writer(self._file, lineterminator="\n")
                if found is None:
                    self._csv.writerow(header)
        except BaseException:
            self._file.close()
            raise
        renew_after_fork(self)

    def add(self, key: str, start: float, measurement: Measurement) -> None:
        """Queue a window, to be written once its energy is known."""
        self._waiting.append((key, start, measurement))
        self.write()

    def write(self) -> None:
        """Write the windows at the head of the queue whose energy is known."""
        with self._lock:
            while self._waiting and self._waiting[0][2].is_ready:
                self._write(*self._waiting.popleft())

    def _write(self, key: str, start: float, measurement: Measurement) -> None:
        energy = measurement.gpu_energy
        try:
            self._csv.writerow([start, key, measurement.time, *(energy.get(i, "") for i in self._gpus)])
        except (OSError, ValueError) as why:  # the disk is full, or somebody else closed the file
            if not self._failed:
                log.warning("%s cannot be written (%s), so windows are missing from it.", self._path, why)
            self._failed = True

    def close(self) -> None:
        """Write what still waits. Waits for samples without the lock, because the thread that brings them needs it."""
        while self._waiting:
            try:
                line = self._waiting.popleft()
            except IndexError:  # the thread has just written it
                break
            _ = line[2].gpu_energy
            with self._lock:
                self._write(*line)
        with self._lock:
            try:
                self._file.close()
            except OSError as why:
                log.warning("%s could not be closed: %s", self._path, why)

    def after_fork(self) -> None:
        """Leave the waiting lines to the parent, and make a new lock: its thread may have held the old one."""
        self._lock = threading.RLock()
        self._waiting = deque()
