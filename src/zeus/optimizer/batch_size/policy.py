"""The names that version 0.1 had here; they live in `zeus.policy` now."""

from zeus.policy.api import Policy
from zeus.policy.registry import POLICIES, find_policy

__all__ = ["POLICIES", "Policy", "find_policy"]
