"""What every place that keeps power profiles promises."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.waiting import PATIENCE_SECONDS
from zeus.device.virtual import VirtualMachine
from zeus.errors import InputError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit.profile_files import FileProfile, FolderProfiles, default_profiles, write
from zeus.profile import LimitSlice, PowerProfile, ProfileKey, Profiles

KEY = ProfileKey("asr", 128, "Tesla V100-PCIE-32GB", 4)
PROFILE = PowerProfile.of([LimitSlice(250, 10, 1.0, 200), LimitSlice(150, 10, 1.2, 150)], limits=[250, 150, 100])
OTHER = PowerProfile.of([LimitSlice(250, 20, 2.0, 300)], limits=[250])
ODD_JOBS = ["", "..", "../up", "a/b", "a__b", "a b", "a%2Fb", "naïve 训练", ".hidden", "C:\\x", "a\nb", "*?"]


@pytest.fixture(params=["folder", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Profiles]:
    """Opens the same place each time, as another process would."""
    if request.param == "folder":
        return lambda: FolderProfiles(tmp_path / "kept" / "profiles")
    return lambda: FileProfile(tmp_path / "kept" / "profile.json")


def test_nothing_is_known_at_first_and_asking_leaves_no_trace(place: Callable[[], Profiles], tmp_path: Path) -> None:
    assert place().get(KEY) is None
    assert list(tmp_path.iterdir()) == []


def test_what_was_put_is_got_back_by_anyone(place: Callable[[], Profiles]) -> None:
    place().put(KEY, PROFILE)
    assert place().get(KEY) == PROFILE


def test_a_profile_put_later_replaces_the_whole_of_the_earlier(place: Callable[[], Profiles]) -> None:
    place().put(KEY, PROFILE)
    place().put(KEY, OTHER)
    assert place().get(KEY) == OTHER


@pytest.mark.parametrize("change", [{"job": "asr2"}, {"batch_size": 64}, {"gpu_model": "NVIDIA A40"}, {"gpu_count": 1}])
def test_a_profile_of_another_key_is_never_used(place: Callable[[], Profiles], change: dict[str, object]) -> None:
    place().put(KEY, PROFILE)
    another = replace(KEY, **change)  # type: ignore[arg-type]
    try:
        found = place().get(another)
    except InputError as told:  # a file that the user named says whose it is
        assert "Give another profile_path" in str(told)
    else:
        assert found is None
    assert place().get(KEY) == PROFILE


def test_the_nearest_batch_size_is_found_among_those_of_the_same_job_and_gpus(tmp_path: Path) -> None:
    profiles = FolderProfiles(tmp_path / "profiles")
    assert profiles.near(KEY) is None
    for size, profile in ((16, OTHER), (64, PROFILE), (128, OTHER), (1024, OTHER)):
        profiles.put(replace(KEY, batch_size=size), profile)
    profiles.put(replace(KEY, batch_size=96, job="another"), OTHER)
    (tmp_path / "profiles" / "spoilt.json").write_text("{")
    assert profiles.near(KEY) == PROFILE


def test_no_part_files_are_left_behind(place: Callable[[], Profiles], tmp_path: Path) -> None:
    place().put(KEY, PROFILE)
    place().put(KEY, OTHER)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_a_profile_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    write(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"measurements": 7}', '{"measurements": [{"energy": 1}]}'])
def test_a_corrupt_file_is_an_error_that_names_what_is_wrong(
    place: Callable[[], Profiles], tmp_path: Path, text: str
) -> None:
    place().put(KEY, PROFILE)
    (file,) = (path for path in tmp_path.rglob("*.json") if path.is_file())
    if text.startswith('{"'):
        key = json.loads(file.read_text())["key"]
        text = json.dumps({"key": key, **json.loads(text)})
    file.write_text(text)
    with pytest.raises(InputError, match="not a power profile"):
        place().get(KEY)


def test_a_folder_in_place_of_a_profile_is_refused(tmp_path: Path) -> None:
    gpus = {0: VirtualMachine.in_memory("v100").gpus[0]}
    with pytest.raises(InputError, match=f"{tmp_path} cannot be read as a power profile: Is a directory"):
        GlobalPowerLimitOptimizer(ZeusMonitor(gpus=gpus), profile_path=tmp_path)


def test_writers_at_the_same_time_leave_one_whole_profile(place: Callable[[], Profiles]) -> None:
    place().put(KEY, PROFILE)
    candidates = [PowerProfile.of([LimitSlice(250, n, float(n), 100.0 * n)] * n) for n in range(1, 9)]
    seen: list[PowerProfile | None] = []
    ready = threading.Barrier(len(candidates) + 1)

    def keep(profile: PowerProfile) -> None:
        ready.wait(PATIENCE_SECONDS)
        for _ in range(20):
            place().put(KEY, profile)

    writers = [threading.Thread(target=keep, args=(profile,)) for profile in candidates]
    for writer in writers:
        writer.start()
    ready.wait(PATIENCE_SECONDS)
    while any(writer.is_alive() for writer in writers):
        seen.append(place().get(KEY))
    for writer in writers:
        writer.join()
    seen.append(place().get(KEY))
    assert all(profile in [PROFILE, *candidates] for profile in seen)
    assert seen[-1] in candidates


@pytest.mark.parametrize("job", ODD_JOBS)
def test_a_folder_takes_a_job_of_any_name_and_stays_in_its_place(tmp_path: Path, job: str) -> None:
    folder = FolderProfiles(tmp_path / "profiles")
    folder.put(replace(KEY, job=job), PROFILE)
    assert folder.get(replace(KEY, job=job)) == PROFILE
    assert [path.parent for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "profiles"]


def test_a_folder_keeps_every_key_apart(tmp_path: Path) -> None:
    folder = FolderProfiles(tmp_path)
    for n, job in enumerate(ODD_JOBS, start=1):
        folder.put(replace(KEY, job=job), PowerProfile.of([LimitSlice(250, n, 1.0, 1.0)]))
    for n, job in enumerate(ODD_JOBS, start=1):
        found = folder.get(replace(KEY, job=job))
        assert found is not None
        assert found.at(250).steps == n


def test_a_file_moved_under_another_keys_name_is_not_used(tmp_path: Path) -> None:
    folder = FolderProfiles(tmp_path)
    another = replace(KEY, batch_size=64)
    folder.put(KEY, PROFILE)
    folder._path(KEY).rename(folder._path(another))
    assert folder.get(another) is None


def test_a_named_file_in_the_form_that_users_know_is_trusted_and_becomes_ours(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"measurements": [{"power_limit": 300, "energy": 2053.7, "time": 9.2}]}))
    found = FileProfile(path).get(KEY)
    assert found is not None
    assert found.at(300).joules == 2053.7
    FileProfile(path).put(KEY, found)
    assert json.loads(path.read_text())["measurements"][0]["energy"] == 2053.7
    assert FileProfile(path).get(KEY) == found


def test_the_default_folder_is_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_profiles().folder == tmp_path / "zeus" / "profiles"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_profiles().folder == tmp_path / ".local" / "share" / "zeus" / "profiles"


def test_keys_that_look_alike_and_long_ones_have_files_of_their_own(tmp_path: Path) -> None:
    keys = [
        ProfileKey("x__8__y", 8, "z", 1),
        ProfileKey("x", 8, "y__8__z", 1),
        ProfileKey("j" * 400, 8, "z", 1),
        ProfileKey("j" * 401, 8, "z", 1),
    ]
    folder = FolderProfiles(tmp_path)
    for i, key in enumerate(keys):
        folder.put(key, PowerProfile.of([LimitSlice(100.0 + i, 1, 1.0, 1.0)]))
    for i, key in enumerate(keys):
        kept = folder.get(key)
        assert kept is not None
        assert kept.slices[0].limit_watts == 100.0 + i
