"""All policies, by name and version."""

from __future__ import annotations

from typing import Any

from zeus.errors import InputError, suggest
from zeus.policy.api import Policy
from zeus.policy.default import DefaultPolicy
from zeus.policy.paper.policy import PaperPolicy
from zeus.policy.structured.policy import StructuredPolicy

_ALL: tuple[Policy[Any], ...] = (
    StructuredPolicy(),
    StructuredPolicy("structured:no-alarm", alarm=False),
    PaperPolicy(),
    PaperPolicy("paper:no-pruning", pruning=False),
    PaperPolicy("paper:no-early-stop", early_stop=False),
    DefaultPolicy(),
)
POLICIES: dict[tuple[str, int], Policy[Any]] = {(policy.name, policy.version): policy for policy in _ALL}


def find_policy(name: str, version: int | None = None) -> Policy[Any]:
    """The policy of this name, in this version or the newest. InputError if there is none.

    >>> find_policy("paper").version
    1
    """
    versions = [v for n, v in POLICIES if n == name]
    if version is None and versions:
        version = max(versions)
    if version is None or (name, version) not in POLICIES:
        if versions:
            raise InputError(f"policy {name!r} has no version {version}. Known versions: {sorted(versions)}.")
        raise InputError(f"policy {name!r} is not known. {suggest(name, sorted({n for n, _ in POLICIES}))}")
    return POLICIES[name, version]
