"""Power profiles in files: one JSON file per key in a folder. One writer replaces each file as a whole."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from zeus import settings
from zeus.errors import InputError
from zeus.files import write_whole
from zeus.optimizer.power_limit.profiler import Plan, choose
from zeus.profile import PowerProfile, ProfileKey, Profiles, nearest

log = logging.getLogger(__name__)

MAX_NAME = 200


def best_nearby(profiles: Profiles | None, key: ProfileKey, plan: Plan) -> float | None:
    """The best limit of the nearest batch size, or None: profiling that starts there ends soonest."""
    try:
        near = None if profiles is None else profiles.near(key)
        known = (
            {} if near is None else {one.limit_watts: (one,) for one in near.slices if one.limit_watts in plan.limits}
        )
        return choose(plan.selector, known, plan.limits) if known else None
    except Exception as failed:  # a stored profile only saves time
        log.warning("the power profile of another batch size is ignored: %s", failed)
        return None


class FolderProfiles:
    """Power profiles in a folder of JSON files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of this key. A file that names another key is ignored."""
        data = _read(self._path(key))
        if data is None or data.get("key") != asdict(key):
            return None
        return PowerProfile.from_json(data)

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        write(self._path(key), {"key": asdict(key), **profile.to_json()})

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of the nearest other batch size that has a file."""
        if key.batch_size < 1 or not self.folder.is_dir():
            return None
        same = [
            one["batch_size"]
            for one in map(_key_in, self.folder.glob("*.json"))
            if one is not None and {**one, "batch_size": key.batch_size} == asdict(key)
        ]
        sizes = nearest(key.batch_size, [size for size in same if isinstance(size, int) and size > 0])
        return self.get(replace(key, batch_size=sizes[0])) if sizes else None

    def _path(self, key: ProfileKey) -> Path:
        parts = [quote(str(part), safe="").replace("_", "%5F") for part in asdict(key).values()]
        name = "__".join(parts)
        if len(name) > MAX_NAME:  # file systems allow 255 bytes
            name = f"{name[:MAX_NAME]}__{hashlib.sha256(name.encode()).hexdigest()[:16]}"
        return self.folder / f"{name}.json"


class FileProfile:
    """A power profile in one file at `profile_path`, in the format of the existing package. It serves one key.

    A file without a key, as the existing package writes it, is trusted: the user gave it for this training.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The file's profile, or None if there is no file.

        Raises:
            InputError: The file is of another job, batch size or GPU, or not a power profile.
        """
        data = _read(self.path)
        if data is None:
            return None
        if "key" in data and data["key"] != asdict(key):
            raise InputError(
                f"{self.path} holds the power profile of {data['key']}, not of {asdict(key)}. "
                "Give another profile_path, or remove the file."
            )
        return PowerProfile.from_json(data)

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        write(self.path, {"key": asdict(key), **profile.to_json()})

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """Always None: the file holds only one profile."""
        return None


def default_profiles() -> FolderProfiles:
    """The profiles in the user's data folder."""
    return FolderProfiles(settings.data_folder() / "profiles")


def write(path: Path, data: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(data, indent=1, allow_nan=False))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except OSError as wrong:
        raise InputError(f"{path} cannot be read as a power profile: {wrong.strerror}. Give another file.") from wrong
    except ValueError as wrong:
        raise InputError(f"{path} is not a power profile: {wrong}. Remove the file, or give another.") from wrong
    if not isinstance(data, dict):
        raise InputError(f"{path} is not a power profile: expected a JSON object. Remove the file, or give another.")
    return data


def _key_in(path: Path) -> dict[str, Any] | None:
    """The key in a file, or None if it has none or cannot be read."""
    try:
        key = (_read(path) or {}).get("key")
    except InputError:
        return None
    return key if isinstance(key, dict) and "batch_size" in key else None
