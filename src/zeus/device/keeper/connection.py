"""One client's connection. The lease lives exactly as long as the connection.

    connected ──hello──▶ greeted ──lease──▶ leasing ──release──▶ greeted
        └───────────────────┴──── end ────────┴── end: limits are restored

The connection ends when the socket closes, when the client process dies (even if a forked child keeps the socket
open), when the client breaks the protocol beyond repair, when it has no lease for too long, or when the keeper stops.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import select
import socket
import time

from zeus.device.gpu import Capability
from zeus.device.keeper import protocol
from zeus.device.keeper.audit import Borrower
from zeus.device.keeper.core import Keeper, Loan
from zeus.device.keeper.peer import Peer, death_of
from zeus.device.keeper.policy import Allowed, Denied, KeeperPolicy
from zeus.device.keeper.restore import log
from zeus.errors import InputError, LeaseRefused, ZeusError

LEASELESS_SECONDS = 30.0  # a connection may be without a lease for this long, whatever it requests meanwhile
SEND_SECONDS = 5.0  # a client that does not read an answer for this long is considered dead


class KeeperConnection:
    """Serves one client until the connection ends."""

    def __init__(
        self,
        sock: socket.socket,
        peer: Peer,
        keeper: Keeper,
        kind: str,
        stop: int,
        policy: KeeperPolicy | None = None,
    ) -> None:
        self._sock = sock
        self._peer = peer
        self._policy = policy or KeeperPolicy()
        self._standing = self._policy.rule_for(peer)
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
                self._loan.give_back()
            with contextlib.suppress(OSError):
                self._sock.close()

    def _converse(self) -> None:
        death = death_of(self._sock, self._peer.pid)
        try:
            lines = protocol.LineBuffer()
            while data := self._receive(death):
                try:
                    for line in lines.feed(data):
                        self._sock.sendall(self._answer(line))
                except InputError as e:  # a line was too long, so the rest is unreadable
                    self._sock.sendall(protocol.failure(e))
                    raise
        finally:
            if death is not None:
                os.close(death)

    def _receive(self, death: int | None) -> bytes:
        """The next bytes. Empty once the connection ends, for whatever reason."""
        poll = select.poll()
        ends = {self._stop} if death is None else {self._stop, death}
        for fd in (self._sock.fileno(), *ends):
            poll.register(fd, select.POLLIN)
        left = max(0.0, self._deadline - time.monotonic())
        ready = {fd for fd, _ in poll.poll(None if self._loan else left * 1000)}
        if not ready or ready & ends:
            return b""
        return self._sock.recv(protocol.MAX_LINE)

    def _answer(self, line: bytes) -> bytes:
        try:
            return protocol.answer(**self._do(protocol.parse(line)))
        except ZeusError as e:
            return protocol.failure(e)
        except Exception as e:
            log.exception("process %d: a request failed", self._peer.pid)
            return protocol.failure(e)

    def _do(self, request: protocol.Request) -> dict[str, object]:
        if not self._greeted and not isinstance(request, protocol.Hello):
            raise InputError(f"the first request must be hello, with protocol version {protocol.VERSION}.")
        match request:
            case protocol.Hello():
                self._greeted = True
                return {"zeus": protocol.VERSION, "pid": os.getpid(), "kind": self._kind}
            case protocol.LeaseRequest(gpus, job):
                if self._loan is not None:
                    raise InputError("this connection already has a lease. Release it first.")
                self._loan = self._keeper.lend(
                    gpus,
                    to=f"process {self._peer.pid}",
                    allowed=self._allowed(),
                    borrower=Borrower(self._peer.uid, self._peer.pid, job),
                )
                log.info("process %d: leased %s", self._peer.pid, ", ".join(self._loan.found))
                return {"found": self._loan.found}
            case protocol.Set(watts):
                if self._loan is None:
                    raise InputError("there is no lease. Ask for one first.")
                return {"limits": self._loan.set(watts), "found": self._loan.found}
            case protocol.Release():
                loan, self._loan = self._loan, None
                self._deadline = time.monotonic() + LEASELESS_SECONDS
                returned = [] if loan is None else loan.give_back()
                return {"returned": [dataclasses.asdict(r) for r in returned]}
            case protocol.Status(gpus):
                specs = [self._keeper.card(uuid).spec for uuid in gpus]
                able = [spec for spec in specs if Capability.LIMITS in spec.capabilities]
                ranges = {spec.uuid: self._allowed().range_on(spec) for spec in able}
                about = {"pid": os.getpid(), "kind": self._kind, "policy": self._policy.text}
                return {**about, "lent": self._keeper.lent(), "ranges": ranges}

    def _allowed(self) -> Allowed:
        match self._standing:
            case Allowed() as allowed:
                return allowed
            case Denied(reason):
                raise LeaseRefused(reason)
