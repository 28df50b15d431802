"""Runs a keeper: a private one for a single trainer, or the system's for all members of a group."""

from __future__ import annotations

import contextlib
import fcntl
import grp
import os
import select
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

from zeus import env
from zeus.device.keeper import protocol
from zeus.device.keeper.connection import KeeperConnection
from zeus.device.keeper.core import Keeper
from zeus.device.keeper.notes import make_open
from zeus.device.keeper.peer import Peer, group_id
from zeus.device.keeper.restore import log
from zeus.errors import InputError, LeaseRefused, NotPermitted

DEFAULT_GROUP = "zeus"
MAX_CONNECTIONS = 256
RECOVER_SECONDS = 5.0  # how often the system keeper looks for limits left behind by a dead private keeper


def serve_private(sock: socket.socket, keeper: Keeper) -> None:
    """Serve the trainer at the other end. Returns when it is gone and its limits are restored."""
    with stop_signal() as stop:
        keeper.recover()
        KeeperConnection(sock, Peer.of(sock), keeper, "private", stop).serve()


def serve_system(path: Path, group: str | None, keeper: Keeper) -> None:
    """Serve root and the members of a group on a unix socket, until SIGTERM, SIGINT or SIGHUP.

    `group` None means the default group. If that does not exist, only root is served.
    """
    gid = group_id(group or DEFAULT_GROUP)
    if gid is None and group is not None:
        raise InputError(f"there is no group '{group}'. Create it with `groupadd --system {group}`, or name another.")
    if gid is None:
        log.warning(
            "There is no group '%s', so only root may take leases. Create it with `groupadd --system %s`, add users "
            "with `usermod -aG %s USER`, and restart the keeper.", DEFAULT_GROUP, DEFAULT_GROUP, DEFAULT_GROUP,
        )  # fmt: skip
    with stop_signal() as stop, _listening(path, gid) as listener:
        recovering = threading.Thread(target=_recover, args=(keeper, stop), daemon=True)
        recovering.start()
        log.info("serving on %s for root and %s", path, _group_name(gid))
        notify("READY=1")
        serving = _accept(listener, gid, keeper, stop)
        notify("STOPPING=1")
        log.info("stopping: restoring the limits of all leases")
        for thread in (recovering, *serving):
            thread.join()


def _recover(keeper: Keeper, stop: int) -> None:
    """Restore what dead keepers left behind, now and every few seconds."""
    poll = select.poll()
    poll.register(stop, select.POLLIN)
    while True:
        try:
            keeper.recover()
        except Exception:  # for example, the folder cannot be read now
            log.exception("Could not look for limits left behind by dead keepers; the keeper will try again.")
        if poll.poll(RECOVER_SECONDS * 1000):
            return


def _accept(listener: socket.socket, gid: int | None, keeper: Keeper, stop: int) -> list[threading.Thread]:
    """Accept connections until told to stop. Returns the threads that still serve one; they see the same `stop`."""
    serving: dict[threading.Thread, int] = {}  # with the user id
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(stop, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        serving = {thread: uid for thread, uid in serving.items() if thread.is_alive()}
        if stop in ready:
            return list(serving)
        try:
            sock, _ = listener.accept()
        except OSError as e:  # the client is gone already, or there are no free descriptors
            log.warning("could not accept a connection: %s", e)
            continue
        try:
            peer = Peer.of(sock)
            if not peer.may_lease(gid):
                raise LeaseRefused(
                    f"user {peer.uid} may not set power limits here: only root and {_group_name(gid)} may. "
                    f"Ask an administrator to run `usermod -aG {_group_name(gid, bare=True)} USER`, then log in again."
                )
            _check_share(peer.uid, list(serving.values()))
            thread = threading.Thread(target=KeeperConnection(sock, peer, keeper, "system", stop).serve, daemon=True)
            thread.start()
            serving[thread] = peer.uid
        except Exception as e:  # no client can stop the keeper
            log.warning("refused a client: %s", e)
            _refuse(sock, e)


def _check_share(uid: int, serving: list[int]) -> None:
    """No user may hold more connections than are free, so that there is always one left for another user."""
    if serving.count(uid) >= MAX_CONNECTIONS - len(serving):
        raise LeaseRefused(
            f"the keeper already serves {len(serving)} connections, {serving.count(uid)} of them for user {uid}. "
            "Try again when some have ended."
        )


def _refuse(sock: socket.socket, error: Exception) -> None:
    with sock, contextlib.suppress(OSError):
        sock.settimeout(0)  # never wait for a refused client
        sock.send(protocol.failure(error))
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(protocol.MAX_LINE):  # unread bytes would turn the answer into a reset
            pass


@contextlib.contextmanager
def stop_signal() -> Iterator[int]:
    """A descriptor that becomes, and stays, readable after SIGTERM, SIGINT or SIGHUP."""
    read, write = os.pipe()
    os.set_blocking(write, False)

    def stop(signum: int, frame: object) -> None:
        with contextlib.suppress(OSError):
            os.write(write, b"x")

    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = {s: signal.signal(s, stop) for s in signals}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)  # inherited: the trainer may have blocked them
    try:
        yield read
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
        os.close(read)
        os.close(write)


@contextlib.contextmanager
def _listening(path: Path, gid: int | None) -> Iterator[socket.socket]:
    """A socket at this path that only we and the group can use. Replaces a dead keeper's, not a live one's."""
    make_open(path.parent)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another keeper already serves {path}. Stop it first, or choose another --socket."
            ) from None
        _check_replaceable(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            _appear(listener, path, gid)
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _appear(listener: socket.socket, path: Path, gid: int | None) -> None:
    """Listen under a temporary name first, so that whoever sees the socket gets an answer, and nobody else gets in."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    umask = os.umask(0o177)
    try:
        listener.bind(str(new))
    except OSError as e:
        raise InputError(f"cannot listen on {path}: {e}. Choose another --socket.") from e
    finally:
        os.umask(umask)
    try:
        if gid is not None:
            _open_to(new, gid)
        listener.listen(128)
        listener.setblocking(False)
        new.replace(path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _open_to(path: Path, gid: int) -> None:
    try:
        os.chown(path, -1, gid)
    except PermissionError as e:
        raise NotPermitted(
            f"cannot give {_group_name(gid)} access to {path}: user {os.geteuid()} is not in that group. "
            "Run the keeper as root."
        ) from e
    path.chmod(0o660)


def _check_replaceable(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InputError(f"{path} exists and is not a socket. Choose another --socket.")


def _group_name(gid: int | None, bare: bool = False) -> str:
    try:
        name = DEFAULT_GROUP if gid is None else grp.getgrgid(gid).gr_name
    except KeyError:
        name = str(gid)
    return name if bare else f"members of the group '{name}'"


def notify(state: str) -> None:
    """Tell systemd, if it started this process."""
    address = env.notify_socket()
    if address.startswith(("/", "@")):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
            sock.send(state.encode())
