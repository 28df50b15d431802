"""Serves the clients of a keeper: a private one for a single trainer, or the system's for all members of a group.

One client's lease lives exactly as long as its connection:

    connected ──hello──▶ greeted ──lease──▶ leasing ──release──▶ greeted
        └───────────────────┴──── end ────────┴── end: limits are restored

The connection ends when the socket closes, when the client process dies (even if a forked child keeps the socket
open), when the client breaks the protocol beyond repair, when it has no lease for too long, or when the keeper stops.
The kernel tells who the client is and when it dies; the client is not asked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import pwd
import select
import signal
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from zeus import settings
from zeus.device.gpu import Capability
from zeus.device.keeper import protocol
from zeus.device.keeper.audit import audit, borrower
from zeus.device.keeper.keeper import Keeper, log
from zeus.device.keeper.loan import Loan
from zeus.device.keeper.policy import Allowed, Denied, KeeperPolicy, Peer, group_id, group_name
from zeus.errors import InputError, LeaseRefused, NotPermitted, ZeusError
from zeus.files import FileLock, open_folder
from zeus.signals import is_stopped, stop_signal

MAX_CONNECTIONS = 256
LEASELESS_SECONDS = 30.0  # a connection may be without a lease for this long, whatever it requests meanwhile
SEND_SECONDS = 5.0  # a client that does not read an answer for this long is considered dead
RETRY_SECONDS = 0.5  # before a private keeper tries again to restore a limit; twice as long each time
LONGEST_RETRY_SECONDS = 60.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_SO_PEERGROUPS = 59
_SO_PEERPIDFD = 77
_CREDENTIALS = struct.Struct("3i")
_GROUPS_BYTES = 1024  # the most that getsockopt can be asked for: 256 groups


def serve_private(sock: socket.socket, keeper: Keeper, policy: KeeperPolicy) -> None:
    """Serve the trainer at the other end. Returns when it is gone and its limits are restored.

    While a driver hangs or a card is lost, its limit cannot be restored. Then the keeper tries again, less and less
    often, until the limit is restored or the keeper is told to stop.
    """
    with stop_signal(*STOP_SIGNALS) as stop:
        keeper.recover()
        KeeperConnection(sock, peer_of(sock), keeper, "private", stop, policy).serve()
        delay = RETRY_SECONDS
        while keeper.owed() and not is_stopped(stop, delay):
            keeper.recover(keeper.owed())
            delay = min(2 * delay, LONGEST_RETRY_SECONDS)


def serve_system(path: Path, keeper: Keeper, read_policy: Callable[[], KeeperPolicy]) -> None:
    """Serve root and whom the policy names on a unix socket, until SIGTERM, SIGINT or SIGHUP.

    The policy is read for each new connection. So a change is in force for the next lease, without a restart.
    """
    policy = read_policy()
    if policy.closed:
        log.error("%s Limits that were left changed are restored meanwhile.", policy.closed)
    elif group_id(policy.group) is None and not policy.is_open_to_many:
        log.warning(
            "There is no group '%s', so only root may take leases. Create it with `groupadd --system %s`, add users "
            "with `usermod -aG %s USER`, and restart the keeper.", policy.group, policy.group, policy.group,
        )  # fmt: skip
    for name in policy.unresolved():
        log.warning(
            "The policy has a rule for %s, which this machine does not know. While that is so, the keeper refuses "
            "whoever the rule may restrict: those who have no name here either.", name,
        )  # fmt: skip
    with stop_signal(*STOP_SIGNALS) as stop, _listening(path, policy) as listener:
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
        if is_stopped(stop, settings.time_limits().keeper_recovery):
            return


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
            peer, policy = peer_of(sock), read_policy()
            if isinstance(rights := policy.rule_for(peer), Denied):
                audit("lease", "refused", "-", None, None, borrower(peer.uid, peer.pid), rights.reason)
                _refuse(sock, LeaseRefused(rights.reason))
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
        while sock.recv(protocol.MAX_BYTES):  # unread bytes would turn the answer into a reset
            pass


class KeeperConnection:
    """Serves one client until the connection ends."""

    def __init__(
        self,
        sock: socket.socket,
        peer: Peer,
        keeper: Keeper,
        kind: str,
        stop: int,
        policy: KeeperPolicy,
    ) -> None:
        self._sock = sock
        self._peer = peer
        self._policy = policy
        self._rights = policy.rule_for(peer)
        self._keeper = keeper
        self._kind = kind
        self._stop = stop  # a descriptor, readable once the keeper must stop
        self._greeted = False
        self._deadline = time.monotonic() + LEASELESS_SECONDS  # counts while there is no lease
        self._loan: Loan | None = None

    def serve(self) -> None:
        """Answer requests until the connection ends, then restore what was lent. Never raises."""
        try:
            self._sock.settimeout(SEND_SECONDS)
            self._converse()
        except (OSError, InputError) as e:
            log.info("process %d: the connection ended: %s", self._peer.pid, e)
        except Exception:
            log.exception("process %d: an error in the keeper ended the connection", self._peer.pid)
        finally:
            if self._loan is not None:
                log.info("process %d: the lease ended", self._peer.pid)
                self._loan.restore()
            with contextlib.suppress(OSError):
                self._sock.close()

    def _converse(self) -> None:
        death = death_of(self._sock, self._peer.pid)
        try:
            while message := self._receive(death):
                self._sock.send(self.answer(message))
        finally:
            if death is not None:
                os.close(death)

    def _receive(self, death: int | None) -> bytes:
        """The next message. Empty once the connection ends, for whatever reason."""
        poll = select.poll()
        ends = {self._stop} if death is None else {self._stop, death}
        for fd in (self._sock.fileno(), *ends):
            poll.register(fd, select.POLLIN)
        left = max(0.0, self._deadline - time.monotonic())
        ready = {fd for fd, _ in poll.poll(None if self._loan else left * 1000)}
        if not ready or ready & ends:
            return b""
        return self._sock.recv(protocol.MAX_BYTES)

    def answer(self, message: bytes) -> bytes:
        """The answer to one request, whatever it is."""
        try:
            return protocol.encode({"ok": True, **self._do(protocol.decode(message))})
        except ZeusError as e:
            return protocol.failure(e)
        except Exception as e:
            log.exception("process %d: a request failed", self._peer.pid)
            return protocol.failure(e)

    def _do(self, request: object) -> dict[str, Any]:
        match request:
            case {"op": "hello", "zeus": int(version)}:
                if version != protocol.VERSION:
                    raise InputError(
                        f"the keeper's protocol has version {protocol.VERSION}, the client's {version}. "
                        "Use the same Zeus for both."
                    )
                self._greeted = True
                return {"zeus": protocol.VERSION, "pid": os.getpid(), "kind": self._kind}
            case _ if not self._greeted:
                raise InputError(f"the first request must be hello, with protocol version {protocol.VERSION}.")
            case {"op": "lease", "gpus": list(gpus), **more} if all(isinstance(gpu, str) for gpu in gpus):
                return {"found": self._lease(gpus, more.get("job"))}
            case {"op": "set", "watts": dict(watts)} if all(map(_is_watts, watts.values())):
                if self._loan is None:
                    raise InputError("there is no lease. Ask for one first.")
                limits = self._loan.set({uuid: float(value) for uuid, value in watts.items()})
                return {"limits": limits, "found": self._loan.found}
            case {"op": "release"}:
                loan, self._loan = self._loan, None
                self._deadline = time.monotonic() + LEASELESS_SECONDS
                results = [] if loan is None else loan.restore()
                return {"results": [dataclasses.asdict(result) for result in results]}
            case {"op": "status", **more}:
                return self._status(more.get("gpus"))
            case _:
                raise InputError(f"the keeper does not know this request: {str(request)[:200]}")

    def _lease(self, gpus: list[str], job: object) -> dict[str, float]:
        if self._loan is not None:
            raise InputError("this connection already has a lease. Release it first.")
        who = borrower(self._peer.uid, self._peer.pid, job if isinstance(job, str) else "")
        self._loan = self._keeper.lend(gpus, f"process {self._peer.pid}", allowed=self._allowed(), who=who)
        log.info("process %d: leased %s", self._peer.pid, ", ".join(self._loan.found))
        return self._loan.found

    def _status(self, gpus: object) -> dict[str, Any]:
        """What is lent, and which limits this client may set on these GPUs."""
        asked = [gpu for gpu in gpus if isinstance(gpu, str)] if isinstance(gpus, list) else []
        specs = [self._keeper.card(uuid).spec for uuid in asked]
        ranges = {s.uuid: self._allowed().range_on(s) for s in specs if Capability.LIMITS in s.capabilities}
        about = {"pid": os.getpid(), "kind": self._kind, "policy": self._policy.text}
        return {**about, "lent": self._keeper.notes.lent(), "ranges": ranges}

    def _allowed(self) -> Allowed:
        match self._rights:
            case Allowed() as allowed:
                return allowed
            case Denied(reason):
                raise LeaseRefused(reason)


def _is_watts(value: object) -> bool:
    """Whether it is a plain number: not true, NaN or 1e999."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e9


def peer_of(sock: socket.socket) -> Peer:
    """Who is at the other end, as it was when it connected."""
    pid, uid, gid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
        others = [g for (g,) in struct.iter_unpack("I", raw)]
    except OSError:  # an old kernel, or too many groups: ask the user database
        others = []
        with contextlib.suppress(KeyError):
            others = os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    return Peer(pid, uid, frozenset([gid, *others]))


def death_of(sock: socket.socket, pid: int) -> int | None:
    """A descriptor that becomes readable when the process that connected ends. None if the kernel offers none.

    The end of the connection is not enough: a forked worker may keep it open after the trainer was killed.

    Raises:
        ProcessLookupError: The process has already ended.
    """
    try:
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)  # Linux 6.5; cannot be fooled by a reused process id
    except OSError as e:
        if e.errno != errno.ENOPROTOOPT:
            raise ProcessLookupError(e.errno, f"process {pid} has ended") from e
    return os.pidfd_open(pid) if pid > 0 else None  # 0: the peer lives in another pid namespace


@contextlib.contextmanager
def _listening(path: Path, policy: KeeperPolicy) -> Iterator[socket.socket]:
    """A socket at this path that only we and the group can use. Replaces a dead keeper's, not a live one's.

    If the policy names more users than one group has, everybody can connect, and the keeper refuses the others.
    """
    open_folder(path.parent)
    _check_folder(path.parent)
    lock = FileLock.take(path.with_name(f"{path.name}.lock"))
    if lock is None:
        raise InputError(f"another keeper already serves {path}. Stop it first, or choose another --socket.")
    with lock:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                raise InputError(f"{path} exists and is not a socket. Choose another --socket.")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            _appear(listener, path, policy)
            try:
                yield listener
            finally:
                path.unlink(missing_ok=True)


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which others could put a link in place of the socket, before root changes its mode."""
    found = folder.stat()
    is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    if os.geteuid() == 0 and (found.st_uid != 0 or is_open):
        raise NotPermitted(
            f"other users can replace files in {folder}, so root does not serve there. "
            f"Run `chown root {folder} && chmod go-w {folder}`, or choose another --socket."
        )


def _appear(listener: socket.socket, path: Path, policy: KeeperPolicy) -> None:
    """Listen under a temporary name first, so that the socket answers as soon as it is seen, and only to its users."""
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
        elif (gid := group_id(policy.group)) is not None:
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
            f"cannot give the group '{group_name(gid)}' access to {path}: user {os.geteuid()} is not in it. "
            "Run the keeper as root."
        ) from e
    path.chmod(0o660)


def notify(state: str) -> None:
    """Tell systemd, if it started this process."""
    address = settings.notify_socket()
    if address.startswith(("/", "@")):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(address.replace("@", "\0", 1) if address.startswith("@") else address)
            sock.send(state.encode())
