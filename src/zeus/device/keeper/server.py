"""Runs a keeper: a private one for a single trainer, or the system's for all members of a group."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from zeus import env
from zeus.device.keeper import protocol
from zeus.device.keeper.audit import AuditEntry, Borrower
from zeus.device.keeper.connection import KeeperConnection
from zeus.device.keeper.core import Keeper
from zeus.device.keeper.peer import Peer
from zeus.device.keeper.policy import Denied, KeeperPolicy, group_name
from zeus.device.keeper.restore import log
from zeus.errors import InputError, LeaseRefused, NotPermitted
from zeus.files import FileLock, open_folder

MAX_CONNECTIONS = 256
RETRY_SECONDS = 0.5  # before a private keeper tries again to restore a limit; twice as long each time
LONGEST_RETRY_SECONDS = 60.0


def serve_private(sock: socket.socket, keeper: Keeper, policy: KeeperPolicy) -> None:
    """Serve the trainer at the other end. Returns when it is gone and its limits are restored.

    While a driver hangs or a card is lost, its limit cannot be restored. Then the keeper tries again, less and less
    often, until the limit is restored or the keeper is told to stop.
    """
    with stop_signal() as stop:
        keeper.recover()
        KeeperConnection(sock, Peer.of(sock), keeper, "private", stop, policy).serve()
        delay = RETRY_SECONDS
        while keeper.owed() and not _is_stopped(stop, delay):
            keeper.recover(keeper.owed())
            delay = min(2 * delay, LONGEST_RETRY_SECONDS)


def serve_system(path: Path, keeper: Keeper, read_policy: Callable[[], KeeperPolicy]) -> None:
    """Serve root and whom the policy names on a unix socket, until SIGTERM, SIGINT or SIGHUP.

    The policy is read for each new connection. So a change is in force for the next lease, without a restart.
    """
    policy = read_policy()
    if policy.closed:
        log.error("%s Limits that were left changed are restored meanwhile.", policy.closed)
    elif policy.group is None and not policy.is_open_to_many:
        log.warning(
            "There is no group '%s', so only root may take leases. Create it with `groupadd --system %s`, add users "
            "with `usermod -aG %s USER`, and restart the keeper.", policy.name, policy.name, policy.name,
        )  # fmt: skip
    for kind, names in (("group", policy.unresolved_groups), ("user", policy.unresolved_users)):
        for name in names:
            log.warning(
                "The policy has a rule for the %s '%s', which this machine does not know. While that is so, the keeper "
                "refuses whoever the rule may restrict: those who have no name here either.", kind, name,
            )  # fmt: skip
    with stop_signal() as stop, _listening(path, policy) as listener:
        recovering = threading.Thread(target=_recover, args=(keeper, stop), daemon=True)
        recovering.start()
        log.info("serving on %s for root and %s%s", path, policy.members(), policy.text and f" ({policy.text})")
        notify("READY=1")
        serving = _accept(listener, keeper, read_policy, stop)
        notify("STOPPING=1")
        log.info("stopping: restoring the limits of all leases")
        for thread in (recovering, *serving):
            thread.join()


def _recover(keeper: Keeper, stop: int) -> None:
    """Restore what dead keepers left behind, now and every few seconds."""
    while True:
        try:
            keeper.recover()
        except Exception:  # for example, the folder cannot be read now
            log.exception("Could not look for limits left behind by dead keepers; the keeper will try again.")
        if _is_stopped(stop, env.time_limits().keeper_recovery):
            return


def _is_stopped(stop: int, within: float) -> bool:
    """Wait for so many seconds, or until the keeper is told to stop. Whether it is."""
    poll = select.poll()
    poll.register(stop, select.POLLIN)
    return bool(poll.poll(within * 1000))


def _accept(
    listener: socket.socket, keeper: Keeper, read_policy: Callable[[], KeeperPolicy], stop: int
) -> list[threading.Thread]:
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
            peer, policy = Peer.of(sock), read_policy()
            if isinstance(standing := policy.rule_for(peer), Denied):
                who = str(Borrower(peer.uid, peer.pid))
                keeper.audit(AuditEntry("lease", "refused", "-", None, None, who, standing.reason))
                _refuse(sock, LeaseRefused(standing.reason))
                continue
            _check_share(peer.uid, list(serving.values()))
            connection = KeeperConnection(sock, peer, keeper, "system", stop, policy)
            thread = threading.Thread(target=connection.serve, daemon=True)
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
def _listening(path: Path, policy: KeeperPolicy) -> Iterator[socket.socket]:
    """A socket at this path that only we and the group can use. Replaces a dead keeper's, not a live one's.

    If the policy names more users than one group has, everybody can connect, and the keeper refuses the others.
    """
    open_folder(path.parent)
    lock = FileLock.take(path.with_name(f"{path.name}.lock"))
    if lock is None:
        raise InputError(f"another keeper already serves {path}. Stop it first, or choose another --socket.")
    with lock:
        _check_replaceable(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            _appear(listener, path, policy)
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)


def _appear(listener: socket.socket, path: Path, policy: KeeperPolicy) -> None:
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
        if policy.is_open_to_many:
            new.chmod(0o666)
        elif policy.group is not None:
            _open_to(new, policy.group)
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
            f"cannot give the group '{group_name(gid)}' access to {path}: user {os.geteuid()} is not in it. "
            "Run the keeper as root."
        ) from e
    path.chmod(0o660)


def _check_replaceable(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InputError(f"{path} exists and is not a socket. Choose another --socket.")


def notify(state: str) -> None:
    """Tell systemd, if it started this process."""
    address = env.notify_socket()
    if address.startswith(("/", "@")):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
            sock.send(state.encode())
