"""The import path of version 0.1 for `zeus.simulate.cluster.match`."""

from zeus.simulate.cluster.match import Cluster, match

__all__ = ["Cluster", "match"]
