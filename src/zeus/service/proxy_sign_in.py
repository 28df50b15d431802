"""People who sign in through the company's proxy: it says in a header who they are.

    browser ──password, SSO──▶ proxy ──X-Forwarded-User: alice──▶ service

The header counts only if the connection comes from a named address. From any other it is ignored, as everybody can
send it.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from starlette.requests import Request

from zeus.service.person import Person, Rejected
from zeus.store.actor import TEAM
from zeus.store.tokens import Scope

PEER = "zeus.peer"  # the key under which a request's scope holds the address at the other end of its connection
LONGEST = 200  # letters of a name


@dataclass(frozen=True, slots=True)
class ProxySignIn:
    """Which header names people, from which addresses, and what they may do."""

    header: str
    addresses: tuple[str, ...]
    scope: Scope = Scope.READ

    def person(self, request: Request) -> Person | Rejected | None:
        """Whom the proxy names; None if this request does not come from the proxy, or if the proxy names nobody."""
        if not self.header or not self._is_trusted(request.scope.get(PEER, "")):
            return None
        names = [one.strip() for one in request.headers.getlist(self.header)]
        if not any(names):
            return None
        name = names[0]
        if len(names) > 1 or len(name) > LONGEST or not name.isprintable() or TEAM in name:
            return Rejected(f"the proxy's header {self.header} does not hold one name without a slash")
        return Person(name, self.scope, by="proxy")

    def _is_trusted(self, peer: str) -> bool:
        """Whether an address is that of a named proxy."""
        try:
            found = ipaddress.ip_address(peer)
        except ValueError:  # not a connection over IP
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in ipaddress.ip_network(one) for one in self.addresses)
