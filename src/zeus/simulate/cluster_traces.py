"""The names that version 0.1 had here; they live in `zeus.simulate.cluster.tables` now."""

from zeus.simulate.cluster.tables import ClusterTrace, Group, collect, read_groups

__all__ = ["ClusterTrace", "Group", "collect", "read_groups"]
