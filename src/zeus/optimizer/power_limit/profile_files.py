"""Power profiles kept between runs: one JSON file a key in a folder, written by one writer and replaced whole."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from zeus import env
from zeus.errors import InputError
from zeus.files import write_whole
from zeus.optimizer.power_limit.profiler import Plan, choose
from zeus.profile import PowerProfile, ProfileKey, Profiles, nearest

log = logging.getLogger(__name__)

MAX_NAME = 200


def best_nearby(profiles: Profiles | None, key: ProfileKey, plan: Plan) -> float | None:
    """The limit that was best for the nearest batch size: where a walk is soonest at its end. None: not known."""
    try:
        near = None if profiles is None else profiles.near(key)
        known = (
            {} if near is None else {one.limit_watts: (one,) for one in near.slices if one.limit_watts in plan.limits}
        )
        return choose(plan.selector, known, plan.limits) if known else None
    except Exception as failed:  # whatever is kept elsewhere, this training can do without
        log.warning("the power profile of another batch size is not used: %s", failed)
        return None


class FolderProfiles:
    """A folder of JSON files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of exactly this key; a file that says it is of another is not used."""
        data = _read(self._path(key))
        if data is None or data.get("key") != _key_to_json(key):
            return None
        return PowerProfile.from_json(data)

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Write the file whole."""
        write(self._path(key), {"key": _key_to_json(key), **profile.to_json()})

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """Of the batch sizes that have a file."""
        if key.batch_size < 1 or not self.folder.is_dir():
            return None
        same = [
            one["batch_size"]
            for one in map(_key_in, self.folder.glob("*.json"))
            if one is not None and {**one, "batch_size": key.batch_size} == _key_to_json(key)
        ]
        sizes = nearest(key, [size for size in same if isinstance(size, int) and size > 0])
        return self.get(replace(key, batch_size=sizes[0])) if sizes else None

    def _path(self, key: ProfileKey) -> Path:
        parts = [quote(str(part), safe="").replace("_", "%5F") for part in _key_to_json(key).values()]
        name = "__".join(parts)
        if len(name) > MAX_NAME:  # file systems take 255 bytes
            name = f"{name[:MAX_NAME]}__{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        return self.folder / f"{name}.json"


class FileProfile:
    """One file at `profile_path`, in the form that users know; it serves the key that it was written for.

    A file without a key (written by the existing package) is trusted: the user named it for this training.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The file's profile, unless it says that it is of another job, batch size or GPU."""
        data = _read(self.path)
        if data is None:
            return None
        if "key" in data and data["key"] != _key_to_json(key):
            raise InputError(
                f"{self.path} holds the power profile of {data['key']}, not of {_key_to_json(key)}. "
                "Name another profile_path, or remove the file."
            )
        return PowerProfile.from_json(data)

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Write the file whole."""
        write(self.path, {"key": _key_to_json(key), **profile.to_json()})

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """None: there is but one profile in it."""
        return None


def default_profiles() -> FolderProfiles:
    """The user's own folder."""
    return FolderProfiles(env.data_folder() / "profiles")


def write(path: Path, data: dict[str, Any]) -> None:
    """Replace a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(data, indent=1, allow_nan=False))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError as wrong:
        raise InputError(f"{path} is not a power profile: {wrong}. Remove it, or name another.") from wrong
    if not isinstance(data, dict):
        raise InputError(f"{path} is not a power profile: expected a JSON object. Remove it, or name another.")
    return data


def _key_in(path: Path) -> dict[str, Any] | None:
    """What a file says that it is of; None where it does not say, or cannot be read."""
    try:
        key = (_read(path) or {}).get("key")
    except (InputError, OSError):
        return None
    return key if isinstance(key, dict) and "batch_size" in key else None


def _key_to_json(key: ProfileKey) -> dict[str, Any]:
    return {
        "job": key.job,
        "batch_size": key.batch_size,
        "gpu_model": key.gpu_model,
        "gpu_count": key.gpu_count,
    }
