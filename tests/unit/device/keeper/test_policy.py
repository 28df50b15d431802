"""The keeper's policy: who may set what, and that a broken policy lends nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.device.gpu import GpuSpec
from zeus.device.keeper.policy import Allowed, Denied, KeeperPolicy, LimitRule, Peer, policy_of
from zeus.settings import SETTINGS
from zeus.settings.config_file import read_config

CARD = GpuSpec("GPU-1", "V100", "nvidia", 100, 250, 250)
SHARES = st.none() | st.integers(1, 100).map("{} %".format)
RULES = st.builds(LimitRule, SHARES) | st.builds(
    lambda low, more: LimitRule(low, low + more),
    st.floats(1, 500),
    st.floats(0, 500),
)


def peer(uid: int = 1000, *groups: int) -> Peer:
    return Peer(4711, uid, frozenset(groups))


def written(text: str, path: Path, group: str | None = None) -> KeeperPolicy:
    path.write_text(text)
    file = read_config(path, SETTINGS, is_system=True)
    assert file is not None
    return policy_of(file, group)


@given(st.lists(RULES, min_size=1, max_size=3), st.floats(1, 500))
def test_what_is_refused_is_outside_the_range_which_is_on_the_card(rules: list[LimitRule], watts: float) -> None:
    allowed = Allowed(tuple(rules))
    low, high = allowed.range_on(CARD)
    assert CARD.min_watts <= low <= high <= CARD.max_watts
    assert (allowed.refusal(CARD, watts) is None) == (low <= watts <= high)


@given(RULES, RULES)
def test_a_member_of_two_groups_has_the_wider_range(one: LimitRule, other: LimitRule) -> None:
    policy = KeeperPolicy(groups={"7": one, "8": other})
    both, alone = policy.rule_for(peer(1000, 7, 8)), policy.rule_for(peer(1000, 7))
    assert isinstance(both, Allowed)
    assert isinstance(alone, Allowed)
    (low, high), (lower, higher) = alone.range_on(CARD), both.range_on(CARD)
    assert lower <= low
    assert high <= higher


def test_root_and_the_group_may_and_nobody_else() -> None:
    policy = KeeperPolicy("54321")
    assert isinstance(policy.rule_for(peer(0)), Allowed)
    assert isinstance(policy.rule_for(peer(os.geteuid())), Allowed)
    assert isinstance(policy.rule_for(peer(1000, 54321)), Allowed)
    denied = policy.rule_for(peer(1000, 8))
    assert isinstance(denied, Denied)
    assert "usermod -aG 54321 USER" in denied.reason


def test_a_group_that_does_not_exist_is_named(tmp_path: Path) -> None:
    policy = written("[keeper]\ngroup = 'no-such-group'", tmp_path / "config.toml")
    assert (policy.group, policy.members()) == ("no-such-group", "members of the group 'no-such-group'")
    denied = policy.rule_for(peer(1000, 8))
    assert isinstance(denied, Denied)
    assert "usermod -aG no-such-group USER" in denied.reason


def test_a_rule_for_the_user_decides_alone_and_a_group_that_is_forbidden_wins() -> None:
    policy = KeeperPolicy("7", groups={"8": LimitRule(allow=False)}, users={"1001": LimitRule(200)})
    assert isinstance(policy.rule_for(peer(1000, 7, 8)), Denied)
    own = policy.rule_for(peer(1001, 8))
    assert isinstance(own, Allowed)
    assert own.range_on(CARD) == (200, 250)


def test_the_policy_of_a_file_names_groups_and_users(tmp_path: Path) -> None:
    text = """
        [keeper]
        floor = "60 %"
        ceiling = 240
        audit = "/var/log/zeus/keeper.log"
        [keeper.groups.daemon]
        floor = 100
        [keeper.groups.no-such-group]
        floor = 1
        [keeper.users.nobody]
        allow = false
    """
    policy = written(text, tmp_path / "config.toml", group="bin")
    assert policy.unresolved() == ["the group 'no-such-group'"]
    assert policy.audit == "/var/log/zeus/keeper.log"
    assert policy.text == "floor 60 %, ceiling 240 W; groups: daemon, no-such-group; users: nobody"
    by_group = {gid: policy.rule_for(peer(1000, gid)) for gid in (1, 2)}  # daemon, bin
    assert {gid: rule.range_on(CARD) for gid, rule in by_group.items() if isinstance(rule, Allowed)} == {
        1: (100, 240),
        2: (150, 240),
    }
    assert isinstance(policy.rule_for(peer(65534, 1)), Denied)


@pytest.mark.parametrize(
    "rule", ["users.no-such-user]\nallow = false", "users.no-such-user]\nfloor = 200", "groups.no-such]\nallow = false"]
)
def test_a_rule_whose_name_cannot_be_resolved_holds_for_whoever_may_have_that_name(rule: str, tmp_path: Path) -> None:
    policy = written(f"[keeper]\ngroup = 'daemon'\n[keeper.{rule}", tmp_path / "config.toml")
    nameless = 54321
    groups = (1, nameless) if rule.startswith("groups") else (1,)
    denied = policy.rule_for(peer(nameless, *groups))
    assert isinstance(denied, Denied)
    assert "'no-such" in denied.reason and str(nameless) in denied.reason
    assert isinstance(policy.rule_for(peer(2, 1)), Allowed)  # bin, in the group daemon: both names are known
    assert isinstance(policy.rule_for(peer(0)), Allowed)


def test_a_group_that_cannot_be_resolved_but_is_only_allowed_more_denies_nobody(tmp_path: Path) -> None:
    policy = written("[keeper]\ngroup = 'daemon'\n[keeper.groups.no-such]\nfloor = 100", tmp_path / "config.toml")
    assert isinstance(policy.rule_for(peer(54321, 1, 54321)), Allowed)


@pytest.mark.parametrize("text", ["[keeper]\nfloor = 'low'", "[keeper]\nflor = 100", "[keeper", "keeper = 3"])
def test_a_policy_that_cannot_be_understood_lends_nothing_even_to_root(text: str, tmp_path: Path) -> None:
    denied = written(text, tmp_path / "config.toml").rule_for(peer(0))
    assert isinstance(denied, Denied)
    assert "until its policy is mended" in denied.reason


def test_a_mistake_elsewhere_in_the_file_does_not_close_the_keeper(tmp_path: Path) -> None:
    policy = written("mode = 'fast'\n[keeper]\nfloor = 150", tmp_path / "config.toml")
    allowed = policy.rule_for(peer(0))
    assert isinstance(allowed, Allowed)
    assert allowed.range_on(CARD) == (150, 250)


def test_the_highest_limit_of_a_card_is_always_allowed() -> None:
    assert Allowed((LimitRule(floor=400),)).range_on(CARD) == (250, 250)
