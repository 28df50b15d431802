"""Aliases: version 0.1 had these names here. They are in `zeus.policy` now."""

from zeus.policy.api import Policy
from zeus.policy.registry import POLICIES, find_policy

__all__ = ["POLICIES", "Policy", "find_policy"]
