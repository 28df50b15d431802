"""The import path of version 0.1 for `zeus.simulate.cluster.tables`."""

from zeus.simulate.cluster.tables import ClusterTrace, Group, collect, read_groups

__all__ = ["ClusterTrace", "Group", "collect", "read_groups"]
