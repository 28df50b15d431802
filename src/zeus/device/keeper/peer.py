"""Who is at the other end of a unix socket, and when that process dies. The kernel tells; the peer is not asked."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import socket
import struct
from dataclasses import dataclass

_SO_PEERGROUPS = 59
_SO_PEERPIDFD = 77
_CREDENTIALS = struct.Struct("3i")
_GROUPS_BYTES = 1024  # the most that getsockopt can be asked for: 256 groups


@dataclass(frozen=True, slots=True)
class Peer:
    """A process, its user and all its groups, as they were when it connected."""

    pid: int
    uid: int
    groups: frozenset[int]

    @classmethod
    def here(cls) -> Peer:
        """This process."""
        return cls(os.getpid(), os.geteuid(), frozenset([os.getegid(), *os.getgroups()]))

    @classmethod
    def of(cls, sock: socket.socket) -> Peer:
        pid, uid, gid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        try:
            raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES)
            others = [g for (g,) in struct.iter_unpack("I", raw)]
        except OSError:  # an old kernel, or too many groups: ask the user database
            others = _listed_groups(uid, gid)
        return cls(pid, uid, frozenset([gid, *others]))


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


def group_id(name: str) -> int | None:
    """The id of the group with this name or number. None if there is none."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return int(name) if name.isdecimal() else None


def _listed_groups(uid: int, gid: int) -> list[int]:
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        return []
