"""The power limits of the GPUs of one training: the lease on them, and what follows a refusal or a lost rank.

    Idle ──take──▶ Lent ──▶ ... ──release──▶ Idle
                    └── refused, something failed, or a rank is lost ──▶ GivenUp(why_not)

All ranks take limits together, or none does. Each sets those of the GPUs that it counts. However a lease ends, its
keeper restores the limits found.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from zeus.cost import Include
from zeus.device.gpu import Gpu
from zeus.device.keeper import Lease, Observing, lend
from zeus.distributed.group import RankGroup
from zeus.errors import DeviceError, ZeusError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.shared_window import SharedWindow, setting_limit


@dataclass(frozen=True, slots=True)
class Idle:
    """There is no lease: no training runs, or there is no limit to choose."""

    why_not: str | None = None  # why no limits were set in the last training


@dataclass(frozen=True, slots=True)
class Lent:
    """Limits may be set."""

    lease: Lease | None  # None: this rank counts no GPU; other ranks set the limits


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Limits are not changed for the rest of this training."""

    why_not: str


class TrainingLimits:
    """The limits of a training on all ranks.

    Args:
        monitor: Measures the GPUs of this rank.
        gpus: Those that this rank counts, and whose limits it sets.
        group: The ranks that train together.
        include: Whose energy decides.
    """

    def __init__(self, monitor: ZeusMonitor, gpus: Sequence[Gpu], group: RankGroup, include: Include) -> None:
        self._monitor, self._gpus, self._group, self._include = monitor, gpus, group, include
        self.state: Idle | Lent | GivenUp = Idle()
        self.parted: str | None = None  # the ranks no longer choose limits together, because of this
        self._error: str | None = None  # why this rank could not set a limit
        self._restored = False  # whether the limits of this training were restored because a rank is lost
        group.on_loss(self._restore, self._part)

    @property
    def lease(self) -> Lease | None:
        return self.state.lease if isinstance(self.state, Lent) else None

    @property
    def why_not(self) -> str | None:
        """Why no limits are set, or None if they are."""
        return None if isinstance(self.state, Lent) else self.state.why_not

    def take(self) -> None:
        """Take the lease, or give up if any rank is refused one. Every rank must call this.

        Raises:
            DeviceError: A rank is lost.
        """
        self.parted, self._restored, self._error = None, False, None
        lease, refusal = None, None
        match lend(self._gpus) if self._gpus else None:
            case Lease() as lent:
                lease = lent
            case Observing(reason):
                refusal = reason
        self.state = Lent(lease)  # whatever fails from here on gives the lease back
        if any(self._group.gather(refusal is not None)):
            self.release(GivenUp(refusal or "another rank of this training may not set power limits"))

    def set(self, limit: float | None) -> None:
        """Set this limit on all GPUs of this rank. None: restore on each the limit found.

        Raises:
            ZeusError: It cannot be set. With several ranks this does not raise: `check` and the segments tell all.
        """
        if self.lease is None and self._group.size == 1:
            return
        with self._setting() as window:
            try:
                if self.lease is not None and limit is not None:
                    self.lease.set_limit(limit)
                elif self.lease is not None:
                    self.lease.set_found()
            except ZeusError as failed:
                if self._group.size == 1:
                    raise
                self._error = str(failed)
                if window is not None:
                    window.local_error = self._error

    def check(self) -> None:
        """Raise DeviceError if a rank could not set its limits. Every rank must call this."""
        if failed := next(filter(None, self._group.gather(self._error)), None):
            raise DeviceError(failed)

    def release(self, state: Idle | GivenUp) -> None:
        """Release the lease. Its keeper restores the limits found."""
        lease, self.state = self.lease, state
        if lease is not None:
            with self._setting(wait=False):
                lease.release()

    def _setting(self, *, wait: bool = True) -> AbstractContextManager[SharedWindow | None]:
        """A block in which limits are set: whoever records this training separates what ran before and after it."""
        return setting_limit(self._monitor, self._group, self._include, wait=wait)

    # ------------------------------------------------------------------ a rank is lost

    def _restore(self) -> str | None:
        """Restore the limits of this rank's GPUs at once, on any thread."""
        state = self.state
        if self._restored or not isinstance(state, Lent):
            return None
        self._restored = True
        if state.lease is None:
            return "sets no power limits, and stopped tuning them"
        state.lease.release()
        if state.lease.is_left:
            return "has asked its keeper to restore the power limits of its GPUs, which the keeper did not confirm"
        return "restored the power limits of its GPUs"

    def _part(self, why: str) -> None:
        self.parted = why
