"""The policy of a site: who may lower power limits through the keeper, and how far.

    rule_for(peer) ──▶ Allowed(rules)      the widest range of all rules that apply to this user
                  └──▶ Denied(reason)

A rule for the user decides alone. Otherwise the rules of all the user's groups apply: one that forbids wins, and among
the others the widest range does. Whoever is in no group of the policy is denied, but root and the keeper's own user.

A name in the policy may not be resolved, for instance while a directory service is down. Then whoever may have that
name is denied, if the rule could take rights away.
"""

from __future__ import annotations

import grp
import math
import os
import pwd
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from zeus.device.gpu import GpuSpec
from zeus.settings.config_file import ConfigFile, percent

DEFAULT_GROUP = "zeus"


@dataclass(frozen=True, slots=True)
class Peer:
    """A process, its user and all its groups."""

    pid: int
    uid: int
    groups: frozenset[int]

    @classmethod
    def here(cls) -> Peer:
        """This process."""
        return cls(os.getpid(), os.geteuid(), frozenset([os.getegid(), *os.getgroups()]))


@dataclass(frozen=True, slots=True)
class LimitBound:
    """A power limit in watts, or as a share of a card's highest limit.

    >>> str(LimitBound(watts=150)), str(LimitBound(share=0.6))
    ('150 W', '60 %')
    """

    watts: float = math.nan
    share: float = math.nan

    @classmethod
    def of(cls, value: float | str) -> LimitBound:
        """A bound as a file has it: 150, or "60 %"."""
        if isinstance(value, str):
            return cls(share=percent(value) or math.nan)
        return cls(watts=float(value))

    def on(self, max_watts: float) -> float:
        """This bound on a card with this highest limit, in watts."""
        return self.watts if math.isnan(self.share) else self.share * max_watts

    def __str__(self) -> str:
        return f"{self.watts:g} W" if math.isnan(self.share) else f"{100 * self.share:g} %"


@dataclass(frozen=True, slots=True)
class LimitRule:
    """What some users may do. None: no bound of the site's own, only those of the card."""

    floor: LimitBound | None = None
    ceiling: LimitBound | None = None
    allow: bool = True


@dataclass(frozen=True, slots=True)
class Allowed:
    """This user may set limits, within the widest range of these rules."""

    rules: tuple[LimitRule, ...] = (LimitRule(),)

    def range_on(self, spec: GpuSpec) -> tuple[float, float]:
        """The lowest and the highest limit on a card, in watts. The card's highest limit is never below the floor."""
        floors = [spec.min_watts if rule.floor is None else rule.floor.on(spec.max_watts) for rule in self.rules]
        ceilings = [spec.max_watts if rule.ceiling is None else rule.ceiling.on(spec.max_watts) for rule in self.rules]
        low = min(max(min(floors), spec.min_watts), spec.max_watts)
        return low, max(min(max(ceilings), spec.max_watts), low)

    def refusal(self, spec: GpuSpec, watts: float) -> str | None:
        """Why this limit may not be set on a card. None if it may."""
        low, high = self.range_on(spec)
        if low <= watts <= high:
            return None
        return (
            f"GPU {spec.uuid}: a power limit of {watts:g} W is not allowed by this machine's policy. "
            f"Choose between {low:g} and {high:g} W, or ask an administrator to change the policy."
        )


@dataclass(frozen=True, slots=True)
class Denied:
    """This user may not set limits."""

    reason: str


@dataclass(frozen=True, slots=True)
class KeeperPolicy:
    """Who may set which limits.

    Args:
        group: The group whose members the base rule is for. None: there is no such group.
        name: Its name.
        base: The rule for members of `group`, root, and the keeper's own user.
        groups: Rules by group id.
        users: Rules by user id.
        closed: Why nobody may set anything. Empty: the policy is in force.
        unresolved_groups: Rules by the name of a group that was not found on this machine.
        unresolved_users: The same for users.
        audit: The file for audit lines. Empty: none.
        text: The policy in words.
    """

    group: int | None = None
    name: str = DEFAULT_GROUP
    base: LimitRule = LimitRule()
    groups: Mapping[int, LimitRule] = field(default_factory=dict)
    users: Mapping[int, LimitRule] = field(default_factory=dict)
    closed: str = ""
    unresolved_groups: Mapping[str, LimitRule] = field(default_factory=dict)
    unresolved_users: Mapping[str, LimitRule] = field(default_factory=dict)
    audit: str = ""
    text: str = ""

    @property
    def is_open_to_many(self) -> bool:
        """Whether users outside `group` may connect, so that the socket must let everybody in to be checked."""
        return bool(self.groups or self.users or self.unresolved_groups or self.unresolved_users)

    def rule_for(self, peer: Peer) -> Allowed | Denied:
        if self.closed:
            return Denied(self.closed)
        if (own := self.users.get(peer.uid)) is not None:
            return Allowed((own,)) if own.allow else Denied(f"the policy forbids user {peer.uid} to set power limits.")
        if peer.uid != 0 and _may_be(user_name(peer.uid), self.unresolved_users):
            return _unresolved("user", self.unresolved_users, user_name(peer.uid))
        return Allowed((self.base,)) if peer.uid in (0, os.geteuid()) else self._rule_for_groups(peer)

    def _rule_for_groups(self, peer: Peer) -> Allowed | Denied:
        hidden = [name for name, rule in self.unresolved_groups.items() if not rule.allow]
        for group in map(group_name, sorted(peer.groups)):
            if _may_be(group, hidden):
                return _unresolved("group", hidden, group)
        found = [(gid, rule) for gid, rule in self.groups.items() if gid in peer.groups]
        forbidding = next((gid for gid, rule in found if not rule.allow), None)
        if forbidding is not None:
            return Denied(f"the policy forbids the group '{group_name(forbidding)}' to set power limits.")
        rules = [rule for _, rule in found]
        if self.group is not None and self.group in peer.groups and self.group not in self.groups:
            rules.append(self.base)
        if rules:
            return Allowed(tuple(rules))
        known = [gid for gid in (self.group, *self.groups) if gid is not None]
        first = group_name(known[0]) if known else self.name
        return Denied(
            f"user {peer.uid} may not set power limits here: only root and {self.members()} may. "
            f"Ask an administrator to run `usermod -aG {first} USER`, then log in again."
        )

    def members(self) -> str:
        """Who besides root may set limits, in words."""
        gids = [*([] if self.group is None else [self.group]), *(g for g, rule in self.groups.items() if rule.allow)]
        names = [f"'{group_name(gid)}'" for gid in dict.fromkeys(gids)] or [f"'{self.name}'"]
        if len(names) == 1:
            return f"members of the group {names[0]}"
        return f"members of the groups {', '.join(names)}"


def policy_of(file: ConfigFile, group: str | None = None) -> KeeperPolicy:
    """The policy that a file sets, for the groups and users of this machine.

    Args:
        file: The file, as it was read.
        group: The name of the group of the base rule, instead of the file's.
    """
    if file.policy_mistakes:
        wrong = " ".join(file.policy_mistakes)
        closed = f"the keeper lends nothing until its policy is mended. {wrong}"
        name = group or DEFAULT_GROUP
        return KeeperPolicy(group_id(name), name, closed=closed)
    table = file.policy
    name = group or table.get("group", DEFAULT_GROUP)
    base = _rule(table, LimitRule())
    groups, unresolved_groups = _resolved(table.get("groups", {}), base, group_id)
    users, unresolved_users = _resolved(table.get("users", {}), base, _user_id)
    return KeeperPolicy(
        group_id(name),
        name,
        base,
        groups,
        users,
        unresolved_groups=unresolved_groups,
        unresolved_users=unresolved_users,
        audit=table.get("audit", ""),
        text=_words(table),
    )


def _resolved(
    table: Any, base: LimitRule, find: Callable[[str], int | None]
) -> tuple[dict[int, LimitRule], dict[str, LimitRule]]:
    """The rules of a table by id, and by name those whose name is not found."""
    found: dict[int, LimitRule] = {}
    unresolved: dict[str, LimitRule] = {}
    for name, rule in table.items() if isinstance(table, Mapping) else ():
        if isinstance(rule, Mapping):
            number = find(name)
            if number is None:
                unresolved[name] = _rule(rule, base)
            else:
                found[number] = _rule(rule, base)
    return found, unresolved


def _may_be(name: str, unresolved: Collection[str]) -> bool:
    """Whether an unresolved rule may be for the user or group of this name, which is a number if it has none."""
    return bool(unresolved) and (name.isdecimal() or name in unresolved)


def _unresolved(kind: str, names: Collection[str], who: str) -> Denied:
    listed = ", ".join(f"'{name}'" for name in names)
    return Denied(
        f"the policy has a rule for the {kind} {listed}, which this machine cannot look up now, and it may be for "
        f"{kind} {who}. Try again later, or ask an administrator to write the number in place of the name."
    )


def _rule(table: Mapping[str, Any], base: LimitRule) -> LimitRule:
    """A rule as a table has it. What the table leaves out is that of the base rule."""
    bounds = {
        name: LimitBound.of(table[name]) if name in table else getattr(base, name) for name in ("floor", "ceiling")
    }
    return LimitRule(**bounds, allow=table.get("allow", True))


def _words(table: Mapping[str, Any]) -> str:
    """The policy in a few words.

    >>> _words({"floor": "60 %", "groups": {"research": {}}})
    'floor 60 %; groups: research'
    """
    bounds = [f"{name} {LimitBound.of(table[name])}" for name in ("floor", "ceiling") if name in table]
    others = [f"{kind}: {', '.join(table[kind])}" for kind in ("groups", "users") if table.get(kind)]
    return "; ".join([", ".join(bounds), *others] if bounds else others)


def group_id(name: str) -> int | None:
    """The id of the group with this name or number. None if there is none."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return int(name) if name.isdecimal() else None


def group_name(gid: int) -> str:
    """The name of a group, or its number."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def user_name(uid: int) -> str:
    """The name of a user, or its number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _user_id(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return int(name) if name.isdecimal() else None
