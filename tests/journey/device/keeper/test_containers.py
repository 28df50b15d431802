"""Private keepers in containers: only where what they write down is shared with the host."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.keeper_container import contained, needs_unshare
from support.keeper_place import TRAINER, Place, nvidia, says, virtual
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.cli.keeper import keeper as keeper_command
from zeus.device.container import is_shared, mark
from zeus.device.keeper.notes import Notes

HOST = """\
22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
25 22 0:23 / /run rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=13G
"""
OVERLAY = """\
700 600 0:61 / / rw,relatime master:300 - overlay overlay rw,lowerdir=/var/lib/docker/overlay2/l/A
701 700 0:64 / /proc rw,nosuid - proc proc rw
"""
OWN_RUN = OVERLAY + "702 700 0:70 / /run rw,nosuid - tmpfs tmpfs rw,size=64000k\n"
MOUNTED = OVERLAY + "703 700 0:23 /zeus /run/zeus rw,nosuid - tmpfs tmpfs rw,size=13G\n"
DISK = OVERLAY + "704 700 259:2 /srv/my\\040notes /var/my\\040notes rw - ext4 /dev/nvme0n1p2 rw\n"


def tree(root: Path, mounts: str = HOST, **files: str) -> Path:
    """What a process sees of its machine: that of a host, but for these files."""
    usual = {"proc/1/cgroup": "0::/init.scope\n", "proc/self/cgroup": "0::/user.slice/session-1.scope\n"}
    for name, text in {**usual, "proc/1/environ": "HOME=/\0", "proc/self/mountinfo": mounts, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "proc/self/ns").mkdir(parents=True, exist_ok=True)
    for kind, number in (("pid", 4026531836), ("cgroup", 4026531835)):
        link = root / "proc/self/ns" / kind
        link.unlink(missing_ok=True)
        link.symlink_to(f"{kind}:[{number}]")
    return root


@pytest.mark.parametrize("mounts", [HOST, OVERLAY], ids=["host", "overlay"])
def test_a_host_is_no_container_even_if_its_root_is_an_overlay(tmp_path: Path, mounts: str) -> None:
    quiet = {"proc/self/cgroup": "0::/system.slice/docker.service\n"}  # the engine itself runs on the host
    assert mark(tree(tmp_path, mounts, **quiet)) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("proc/1/environ", "PATH=/bin\0container=podman\0"),
        ("proc/1/cgroup", "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-0123456789abcdef.scope\n"),
        ("proc/self/cgroup", "4:memory:/docker/0123456789abcdef0123456789abcdef\n"),
        ("proc/self/cgroup", "0::/machine.slice/libpod-0123456789abcdef.scope\n"),
    ],
)
def test_a_container_is_known_by_its_marks(tmp_path: Path, name: str, text: str) -> None:
    assert f"/{name}" in str(mark(tree(tmp_path, **{name: text})))


@pytest.mark.parametrize("name", [".dockerenv", "run/.containerenv", "run/systemd/container"])
def test_a_file_of_an_engine_is_a_mark_unless_namespaces_are_seen_to_be_the_first(tmp_path: Path, name: str) -> None:
    root = tree(tmp_path, **{name: ""})
    assert mark(root) is None  # a virtual machine that was made from an image
    (root / "proc/self/ns/cgroup").unlink()
    assert f"/{name}" in str(mark(root))


@pytest.mark.parametrize("kind", ["pid", "cgroup"])
def test_a_container_is_known_by_a_namespace_that_is_not_the_first(tmp_path: Path, kind: str) -> None:
    link = tree(tmp_path) / "proc/self/ns" / kind
    link.unlink()
    link.symlink_to(f"{kind}:[4026532561]")
    assert f"/proc/self/ns/{kind}" in str(mark(tmp_path))


@pytest.mark.parametrize(
    ("mounts", "folder", "shared"),
    [
        (OVERLAY, "/run/zeus/keeper", False),
        (OWN_RUN, "/run/zeus/keeper", False),
        (MOUNTED, "/run/zeus/keeper", True),
        (MOUNTED, "/run/zeus2/keeper", False),
        (DISK, "/var/my notes/keeper", True),
        ("", "/run/zeus/keeper", False),
    ],
)
def test_a_folder_is_shared_if_it_was_mounted_into_the_container(
    tmp_path: Path, mounts: str, folder: str, shared: bool
) -> None:
    assert is_shared(Path(folder), tree(tmp_path, mounts)) is shared


on_nvidia = pytest.mark.parametrize("place", [nvidia], ids=["nvidia"], indirect=True)


@needs_unshare
@on_nvidia
def test_in_a_container_of_its_own_a_trainer_only_observes_and_says_what_to_mount(place: Place) -> None:
    trainer = contained(place, "-c", TRAINER, "hold", shared=False)
    reason = says(trainer, "observing")
    assert "container" in reason and "-v /run/zeus:/run/zeus" in reason and "ZEUS_KEEPER=private" in reason
    assert place.is_untouched()


@needs_unshare
@on_nvidia
def test_a_private_keeper_in_a_container_can_be_asked_for_with_a_warning(place: Place) -> None:
    trainer = contained(place, "-c", TRAINER, "end", shared=False, ZEUS_KEEPER="private")
    out, err = trainer.communicate(timeout=PATIENCE_SECONDS)
    assert "lowered" in out
    assert "ZEUS_KEEPER=private" in err and "container" in err
    assert place.is_untouched()


@needs_unshare
@on_nvidia
def test_zeus_env_tells_the_risk_that_was_accepted(place: Place) -> None:
    command = ("-c", "from zeus.cli.main import main; main()", "env")
    told = contained(place, *command, shared=False, ZEUS_KEEPER="private", COLUMNS="1000")
    assert "Accepted risk: this process runs in a container" in told.communicate(timeout=PATIENCE_SECONDS)[0]


@needs_unshare
@on_nvidia
def test_containers_that_share_the_folder_share_its_locks_and_notes(place: Place) -> None:
    first = contained(place, "-c", TRAINER, "hold", shared=True)
    says(first, "lowered")
    second = contained(place, "-c", TRAINER, "hold", shared=True)
    assert "on lease to" in says(second, "observing")
    first.kill()
    notes = Notes(place.folder / "run" / "keeper")
    eventually(lambda: (lock := notes.lock(place.gpus[0].spec.uuid)) is not None and lock.release() is None)
    third = contained(place, "-c", TRAINER, "end", shared=True)
    assert "lowered" in third.communicate(timeout=PATIENCE_SECONDS)[0]
    assert place.is_untouched()


@needs_unshare
@on_nvidia
def test_a_container_with_the_hosts_folder_finds_the_hosts_keeper(place: Place) -> None:
    shared = place.folder / "run"
    shared.mkdir()
    place.env["ZEUS_KEEPER_STATE"] = str(shared / "keeper")
    place.serve(path=shared / "keeper.sock")
    first = contained(place, "-c", TRAINER, "hold", shared=True)
    says(first, "lowered")
    first.kill()
    eventually(place.is_untouched)


@needs_unshare
@on_nvidia
def test_a_folder_that_others_could_write_in_is_refused_and_no_other_is_used_in_its_place(place: Place) -> None:
    folder = place.folder / "run" / "keeper"
    folder.mkdir(parents=True)
    folder.chmod(0o770)
    trainer = contained(place, "-c", TRAINER, "end", shared=True, ZEUS_KEEPER="private")
    assert "the keeper's folder /run/zeus/keeper is not a folder that only user 0 can" in says(trainer, "observing")
    assert place.is_untouched()
    command = ("-c", "from zeus.cli.main import main; main()", "restore")
    restore = contained(place, *command, shared=True)
    assert "/run/zeus/keeper" in restore.communicate(timeout=PATIENCE_SECONDS)[1]
    assert restore.returncode == 1


@needs_unshare
@on_nvidia
def test_where_run_is_read_only_the_temporary_folder_is_used(place: Place) -> None:
    script = "import subprocess; subprocess.run(['mount', '-o', 'remount,ro', '/run'], check=True)\n"
    script += "from zeus.device.keeper.notes import Notes; print('folder', Notes.here().folder)"
    used = contained(place, "-c", f"import shutil; shutil.rmtree('/run/zeus')\n{script}", shared=False)
    assert says(used, "folder") == f"{tempfile.gettempdir()}/zeus-0/keeper"


@needs_unshare
@pytest.mark.parametrize("place", [virtual], ids=["virtual"], indirect=True)
def test_virtual_cards_are_lent_in_any_container(place: Place) -> None:
    trainer = contained(place, "-c", TRAINER, "end", shared=False)
    assert "lowered" in trainer.communicate(timeout=PATIENCE_SECONDS)[0]
    assert place.is_untouched()


@needs_unshare
@on_nvidia
def test_a_system_keeper_in_a_container_of_its_own_says_what_it_cannot_see(place: Place) -> None:
    keeper = contained(place, "-m", "zeus.device.keeper", "--socket", "/run/zeus/keeper.sock", shared=False)
    assert keeper.stderr is not None
    assert any("container" in line and "/run/zeus" in line for line in keeper.stderr)
    keeper.kill()


def test_private_is_no_socket_to_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_KEEPER", "private")
    refused = CliRunner().invoke(keeper_command, [])
    assert refused.exit_code == 2
    assert "--socket" in refused.output
