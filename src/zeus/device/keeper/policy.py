"""The policy of a site: who may lower power limits through the keeper, and how far.

    rule_for(peer) ──▶ Allowed(rules)      the widest range of all rules that apply to this user
                  └──▶ Denied(reason)

A rule for the user decides alone. Otherwise the rules of all the user's groups apply: one that forbids wins, and among
the others the widest range does. Whoever is in no group of the policy is denied, but root and the keeper's own user.

A name in the policy may not be resolved, for instance while a directory service is down. Then users who may have that
name are denied, if the rule could take rights away.
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
from zeus.settings.config_file import ConfigFile, limit_of

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


Bound = float | str  # a power limit in watts, or as a share of a card's highest limit, such as "60 %"


def watts_of(bound: Bound, max_watts: float) -> float:
    """What a bound is on a card with this highest limit.

    >>> watts_of(150, 250), watts_of("60 %", 250)
    (150.0, 150.0)
    """
    number, unit = limit_of(bound) or (math.nan, "W")
    return number * max_watts / 100 if unit == "%" else number


@dataclass(frozen=True, slots=True)
class LimitRule:
    """What some users may do. None: no bound of the site's own, only those of the card."""

    floor: Bound | None = None
    ceiling: Bound | None = None
    allow: bool = True


@dataclass(frozen=True, slots=True)
class Allowed:
    """This user may set limits, within the widest range of these rules."""

    rules: tuple[LimitRule, ...] = (LimitRule(),)

    def range_on(self, spec: GpuSpec) -> tuple[float, float]:
        """The lowest and the highest limit on a card, in watts. The card's highest limit is never below the floor."""
        top = spec.max_watts
        floors = [spec.min_watts if rule.floor is None else watts_of(rule.floor, top) for rule in self.rules]
        ceilings = [top if rule.ceiling is None else watts_of(rule.ceiling, top) for rule in self.rules]
        low = min(max(min(floors), spec.min_watts), top)
        return low, max(min(max(ceilings), top), low)

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
    """Who may set which limits. Users and groups are named, or given by number.

    Args:
        group: The group whose members the base rule is for.
        base: The rule for members of `group`, root, and the keeper's own user.
        groups: Rules for other groups.
        users: Rules for users.
        closed: Why nobody may set anything. Empty: the policy is in force.
        audit: The file for audit lines. Empty: none.
        text: The policy in words.
    """

    group: str = DEFAULT_GROUP
    base: LimitRule = LimitRule()
    groups: Mapping[str, LimitRule] = field(default_factory=dict)
    users: Mapping[str, LimitRule] = field(default_factory=dict)
    closed: str = ""
    audit: str = ""
    text: str = ""

    @property
    def is_open_to_many(self) -> bool:
        """Whether users outside `group` may connect, so that the socket must let everybody in to be checked."""
        return bool(self.groups or self.users)

    def rule_for(self, peer: Peer) -> Allowed | Denied:
        if self.closed:
            return Denied(self.closed)
        users, missing = _looked_up(self.users, user_id)
        if (own := users.get(peer.uid)) is not None:
            return Allowed((own,)) if own.allow else Denied(f"the policy forbids user {peer.uid} to set power limits.")
        if peer.uid != 0 and _may_be(user_name(peer.uid), missing):
            return _unresolved("user", missing, user_name(peer.uid))
        return Allowed((self.base,)) if peer.uid in (0, os.geteuid()) else self._rule_for_groups(peer)

    def _rule_for_groups(self, peer: Peer) -> Allowed | Denied:
        rules, missing = self._group_rules()
        hidden = [name for name, rule in missing.items() if not rule.allow]
        for group in map(group_name, sorted(peer.groups)):
            if _may_be(group, hidden):
                return _unresolved("group", hidden, group)
        found = {gid: rule for gid, rule in rules.items() if gid in peer.groups}
        for gid, rule in found.items():
            if not rule.allow:
                return Denied(f"the policy forbids the group '{group_name(gid)}' to set power limits.")
        if found:
            return Allowed(tuple(found.values()))
        return Denied(
            f"user {peer.uid} may not set power limits here: only root and {self.members()} may. "
            f"Ask an administrator to run `usermod -aG {self._open_groups()[0]} USER`, then log in again."
        )

    def _group_rules(self) -> tuple[dict[int, LimitRule], dict[str, LimitRule]]:
        return _looked_up({self.group: self.base, **self.groups}, group_id)

    def unresolved(self) -> list[str]:
        """The users and groups with a rule that this machine cannot look up now, in words."""
        groups, users = _looked_up(self.groups, group_id)[1], _looked_up(self.users, user_id)[1]
        return [*(f"the group '{name}'" for name in groups), *(f"the user '{name}'" for name in users)]

    def members(self) -> str:
        """Who besides root may set limits, in words."""
        names = [f"'{name}'" for name in self._open_groups()]
        return f"members of the group{'s' * (len(names) > 1)} {', '.join(names)}"

    def _open_groups(self) -> list[str]:
        return [group_name(gid) for gid, rule in self._group_rules()[0].items() if rule.allow] or [self.group]


def policy_of(file: ConfigFile, group: str | None = None) -> KeeperPolicy:
    """The policy that a file sets.

    Args:
        file: The file, as it was read.
        group: The name of the group of the base rule, instead of the file's.
    """
    if file.policy_mistakes:
        wrong = " ".join(file.policy_mistakes)
        closed = f"the keeper lends nothing until its policy is mended. {wrong}"
        return KeeperPolicy(group or DEFAULT_GROUP, closed=closed)
    table = file.policy
    base = _rule(table, LimitRule())
    groups, users = (
        {name: _rule(rule, base) for name, rule in table.get(kind, {}).items()} for kind in ("groups", "users")
    )
    return KeeperPolicy(
        group or table.get("group", DEFAULT_GROUP),
        base,
        groups,
        users,
        audit=table.get("audit", ""),
        text=_words(table),
    )


def _looked_up(
    rules: Mapping[str, LimitRule], find: Callable[[str], int | None]
) -> tuple[dict[int, LimitRule], dict[str, LimitRule]]:
    """The rules by id, and by name those whose name is not found."""
    ids = {name: find(name) for name in rules}
    return (
        {number: rules[name] for name, number in ids.items() if number is not None},
        {name: rules[name] for name, number in ids.items() if number is None},
    )


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
    return LimitRule(table.get("floor", base.floor), table.get("ceiling", base.ceiling), table.get("allow", True))


def _words(table: Mapping[str, Any]) -> str:
    """The policy in a few words.

    >>> _words({"floor": "60 %", "groups": {"research": {}}})
    'floor 60 %; groups: research'
    """
    words = ((name, table[name]) for name in ("floor", "ceiling") if name in table)
    bounds = [f"{name} {bound}" if isinstance(bound, str) else f"{name} {bound:g} W" for name, bound in words]
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


def user_id(name: str) -> int | None:
    """The id of the user with this name or number. None if there is none."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return int(name) if name.isdecimal() else None
