"""The folder in which a script under `zeus profile` leaves what it measured (ZEUS_PROFILE_DIR)."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from zeus.errors import InputError
from zeus.files import write_whole
from zeus.job import Outcome
from zeus.job.wire import Json, dumps, from_json, loads, to_json
from zeus.launcher_env import LauncherEnv
from zeus.profile import PowerProfile, ProfileKey

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProfileFolder:
    """What a script leaves: its power profile when that is complete, and what it measured when it ends."""

    path: Path

    @classmethod
    def of(cls, orders: LauncherEnv) -> ProfileFolder | None:
        """The folder that `zeus profile` gave this script, or None."""
        return None if orders.profile_dir is None else cls(Path(orders.profile_dir))

    @property
    def has_profile(self) -> bool:
        """Whether the power profile is complete. Cheap: it is asked between training steps."""
        return self._profile.exists()

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        self._write(self._profile, {"key": to_json(key), "profile": to_json(profile)})

    def profile(self) -> tuple[ProfileKey, PowerProfile] | None:
        data = _read(self._profile)
        return None if data is None else (from_json(data["key"], ProfileKey), from_json(data["profile"], PowerProfile))

    def put_measured(self, so_far: Outcome, steps_per_epoch: int | None) -> None:
        self._write(self._measured, {"so_far": to_json(so_far), "steps_per_epoch": steps_per_epoch})

    def measured(self) -> tuple[Outcome, int | None] | None:
        """What the training had used when it ended, and the steps of an epoch."""
        data = _read(self._measured)
        return None if data is None else (from_json(data["so_far"], Outcome), data["steps_per_epoch"])

    @property
    def _profile(self) -> Path:
        return self.path / "profile.json"

    @property
    def _measured(self) -> Path:
        return self.path / "measured.json"

    def _write(self, file: Path, data: Json) -> None:
        try:
            write_whole(file, dumps(data))
        except OSError as failed:
            log.warning("what `zeus profile` measured could not be written to %s: %s", file, failed)


def _read(file: Path) -> Json | None:
    with contextlib.suppress(OSError, InputError):
        return dict(loads(file.read_text()))
    return None
