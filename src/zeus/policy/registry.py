"""Every policy by its name and version."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from zeus.errors import InputError
from zeus.policy.api import Policy
from zeus.policy.default import DefaultPolicy
from zeus.policy.paper.policy import PaperPolicy
from zeus.policy.structured.policy import StructuredPolicy

_KNOWN: tuple[Policy[Any], ...] = (
    StructuredPolicy(),
    StructuredPolicy("structured:no-alarm", alarm=False),
    PaperPolicy(),
    PaperPolicy("paper:no-pruning", pruning=False),
    PaperPolicy("paper:no-early-stop", early_stop=False),
    DefaultPolicy(),
)
POLICIES: dict[tuple[str, int], Policy[Any]] = {(policy.name, policy.version): policy for policy in _KNOWN}


def find_policy(name: str, version: int | None = None) -> Policy[Any]:
    """The policy of this name, in this version or the newest.

    >>> find_policy("paper").version
    1
    """
    versions = [v for n, v in POLICIES if n == name]
    if version is None and versions:
        version = max(versions)
    if version is None or (name, version) not in POLICIES:
        near = get_close_matches(name, sorted({n for n, _ in POLICIES}), n=1)
        hint = f" Did you mean {near[0]!r}?" if near and near[0] != name else ""
        known = ", ".join(f"{n} (version {v})" for n, v in sorted(POLICIES))
        asked = f"policy {name!r}" + (f", version {version}" if version is not None else "")
        raise InputError(f"{asked} is not known.{hint} Known: {known}.")
    return POLICIES[name, version]
