"""What a trial used between its last report and a restart of its ranks, from the counters of the GPUs.

    report ──▶ note of the counters ──▶ ... ranks are lost ──▶ start: counters now − noted = the part that was lost

An elastic launcher such as torchrun starts lost ranks again, within the same trial. What they used since the trial last
reported is known to nobody, but the GPUs went on counting. So whenever the trial reports, each rank notes the counters
of the GPUs that it counts, in small files on its node.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from zeus import settings
from zeus.cost import GPU_ONLY, Include, Use
from zeus.device.gpu import Gpu
from zeus.device.ranks import shared_folder
from zeus.distributed.group import RankGroup
from zeus.errors import ZeusError
from zeus.files import write_whole
from zeus.job import Outcome
from zeus.launcher_env import LauncherEnv
from zeus.monitor import ZeusMonitor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CounterNote:
    """The counter of one GPU, when its trial last reported."""

    reported: float  # seconds of training in that report
    at: float  # wall clock
    joules: float
    cards: int  # GPUs of all ranks


class CounterNotes:
    """The notes of one rank.

    Args:
        orders: What the launcher set in the environment; it names the trial.
        monitor: Its GPUs are those of this rank.
        group: The ranks that train together.
        include: Whose energy counts. If it is not that of GPUs alone, nothing is noted.
    """

    def __init__(self, orders: LauncherEnv, monitor: ZeusMonitor, group: RankGroup, include: Include) -> None:
        # After running out of memory, the launcher starts the trial again and charges the last start by itself.
        self._charged = orders.spent_seconds or 0.0
        start = (orders.job_id, orders.trial, orders.trial_id, self._charged)
        self._trial = hashlib.sha256(repr(start).encode()).hexdigest()[:16]
        self._monitor, self._group, self._include = monitor, group, include
        self._clock = monitor.clock
        self._cards = 0  # of all ranks

    def lost(self, so_far: Outcome | None) -> Use:
        """What was used since this report. Every rank must call this when it begins to measure.

        Nothing if the trial starts for the first time. The energy is NaN if it is not known of all GPUs.
        """
        reported = 0.0 if so_far is None else so_far.seconds
        found = [(gpu, note) for gpu in self._gpus if (note := self._read(gpu)) is not None]
        joules = sum(_used(gpu, note, reported) for gpu, note in found)
        seconds = max((self._clock.wall() - note.at for _, note in found), default=0.0)
        noted = max((note.cards for _, note in found), default=0)
        rows = self._group.gather((joules, max(0.0, seconds), len(found), noted, len(self._gpus)))
        self._cards = sum(row[4] for row in rows)
        before = max(row[3] for row in rows)
        if not before and not settings.elastic_start() and reported <= self._charged:
            return Use()
        is_whole = before > 0 and sum(row[2] for row in rows) == before
        return Use(sum(row[0] for row in rows) if is_whole else math.nan, max(row[1] for row in rows))

    def take(self, so_far: Outcome) -> dict[Path, CounterNote]:
        """The counters as they stand with this report. No rank may train on before all have called this."""
        if self._include != GPU_ONLY:
            return {}
        try:
            return {
                self._path(gpu): CounterNote(so_far.seconds, self._clock.wall(), gpu.energy(), self._cards)
                for gpu in self._gpus
            }
        except ZeusError as failed:
            log.info("the energy counters could not be noted: %s", failed)
            return {}

    def keep(self, notes: Mapping[Path, CounterNote]) -> None:
        """Write these notes, because their report was delivered."""
        try:
            for path, note in notes.items():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_whole(path, json.dumps(asdict(note)))
        except OSError as failed:
            log.info("the energy counters could not be noted: %s", failed)

    def remove(self) -> None:
        """The trial has ended."""
        for gpu in self._gpus:
            with contextlib.suppress(OSError):  # a small file stays until the node starts again
                self._path(gpu).unlink(missing_ok=True)

    @property
    def _gpus(self) -> list[Gpu]:
        return list(self._monitor.counted.values())

    def _read(self, gpu: Gpu) -> CounterNote | None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return CounterNote(**json.loads(self._path(gpu).read_text()))
        return None

    def _path(self, gpu: Gpu) -> Path:
        return shared_folder() / "trials" / f"{self._trial}-{gpu.spec.uuid}.json"


def _used(gpu: Gpu, note: CounterNote, reported: float) -> float:
    """Joules since the note. NaN if the counter began anew, or the store has another report than that of the note."""
    with contextlib.suppress(ZeusError):
        used = gpu.energy() - note.joules
        if used >= 0 and math.isclose(note.reported, reported, rel_tol=1e-6, abs_tol=1e-6):
            return used
    return math.nan
