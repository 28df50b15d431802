"""Files that processes share: locks have one holder, and a private folder has one writer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zeus.errors import NotPermitted
from zeus.files import FileLock, private_folder, write_whole


def test_a_lock_has_one_holder_who_is_named_in_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FileLock.take(path, "process 4711")
    assert first is not None
    assert FileLock.take(path, "another") is None
    assert path.read_text() == "process 4711"
    first.release()
    first.release()
    with FileLock.take(path) or pytest.fail("it was released"):
        assert path.read_text() == ""


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError):
        FileLock.take(tmp_path / "lock", "process 4711")
    assert (tmp_path / "precious").read_text() == "data"


@pytest.mark.parametrize("found", ["nothing", "a folder of our own"])
def test_a_folder_of_our_own_is_made_or_used(tmp_path: Path, found: str) -> None:
    folder = tmp_path / "above" / "mine"
    if found != "nothing":
        folder.mkdir(parents=True, mode=0o700)
    assert private_folder(folder, "the folder", "choose another") == folder
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("found", ["a file", "a link", "open to a group", "open to all", "of another user"])
def test_anything_else_is_refused_with_a_remedy(tmp_path: Path, found: str) -> None:
    path = tmp_path / "mine"
    if found == "a file":
        path.touch(mode=0o600)
    elif found == "a link":
        path.symlink_to(tmp_path)
    else:
        path.mkdir(mode=0o700)
    if found.startswith("open"):
        path.chmod(0o770 if "group" in found else 0o707)
    elif found == "of another user":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(path, 65534, 65534)
    with pytest.raises(NotPermitted, match=rf"the folder {path} is not .*Remove it, or choose another\."):
        private_folder(path, "the folder", "choose another")


def test_a_write_that_fails_leaves_the_old_text_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "note"
    write_whole(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "new \udc80")
    assert (path.read_text(), [entry.name for entry in tmp_path.iterdir()]) == ("old", ["note"])
    assert path.stat().st_mode & 0o777 == 0o600
