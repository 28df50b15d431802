"""All policies by name: our own, installed ones (entry point group `zeus.policies`), and `module:Class`."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from zeus.errors import InputError, suggest
from zeus.job.checks import is_whole
from zeus.policy.api import Policy
from zeus.policy.default import DefaultPolicy
from zeus.policy.paper.policy import PaperPolicy
from zeus.policy.plugins import installed, load, made
from zeus.policy.structured.policy import StructuredPolicy

GROUP: Final = "zeus.policies"
FUNCTIONS: Final = ("start", "observe", "decide", "keep_going")

_ALL: tuple[Policy[Any], ...] = (
    StructuredPolicy(),
    StructuredPolicy("structured:no-alarm", alarm=False),
    PaperPolicy(),
    PaperPolicy("paper:no-pruning", pruning=False),
    PaperPolicy("paper:no-early-stop", early_stop=False),
    DefaultPolicy(),
)
POLICIES: dict[tuple[str, int], Policy[Any]] = {(policy.name, policy.version): policy for policy in _ALL}
# Nobody was given version 1 of the structured policy, so its jobs are folded with version 2.
INSTEAD: Final = {("structured", 1): 2, ("structured:no-alarm", 1): 2}


def find_policy(name: str, version: int | None = None) -> Policy[Any]:
    """The policy of this name, in this version or the newest. InputError if there is none.

    >>> find_policy("paper").version
    1
    """
    versions = [v for n, v in POLICIES if n == name]
    if not versions:
        theirs = _theirs(name)
        if version not in (None, theirs.version):
            raise InputError(
                f"policy {name!r} has version {theirs.version} here, but the job was decided on with version "
                f"{version}. Install that version, or reset the job (`zeus jobs reset`)."
            )
        return theirs
    version = max(versions) if version is None else INSTEAD.get((name, version), version)
    if version not in versions:
        raise InputError(f"policy {name!r} has no version {version}. Known versions: {sorted(versions)}.")
    return POLICIES[name, version]


def named_policy(name: str) -> Policy[Any]:
    """As `find_policy`, but no module is imported because a client names it. For jobs that come over the network."""
    if is_path(name):
        raise InputError(
            f"policy {name!r} names a module, and a service loads none that its clients name. Install the policy where "
            f"the service runs, as an entry point of the group {GROUP!r}, and give the name of that."
        )
    return find_policy(name)


def policy_names() -> list[str]:
    """All policies that have a name here."""
    return sorted({name for name, _ in POLICIES} | installed(GROUP).keys())


def is_path(name: str) -> bool:
    """Whether a policy is named by its module, and not known by this name.

    >>> is_path("mine.policies:Mine"), is_path("paper:no-pruning"), is_path("paper:no-such-part")
    (True, False, False)
    """
    first, colon, _ = name.partition(":")
    return bool(colon) and first not in {known.partition(":")[0] for known in policy_names()}


@cache
def _theirs(name: str) -> Policy[Any]:
    what = f"policy {name!r}"
    points = installed(GROUP)
    if name not in points and not is_path(name):
        raise InputError(
            f"{what} is not known. {suggest(name, policy_names())} Your own is named module:Class, or by an "
            f"entry point of the group {GROUP!r}."
        )
    policy = made(what, load(what, points[name].value if name in points else name))
    lacking = [part for part in FUNCTIONS if not callable(getattr(policy, part, None))]
    lacking += [part for part in ("name", "version") if not hasattr(policy, part)]
    if lacking:
        raise InputError(f"{what} lacks {', '.join(lacking)}. A policy has {', '.join(FUNCTIONS)}, name and version.")
    if not isinstance(policy.name, str) or not is_whole(policy.version, 1):
        raise InputError(f"{what}: its name must be text, and its version a whole number of at least 1.")
    return policy  # type: ignore[no-any-return]
