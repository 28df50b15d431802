"""The names that version 0.1 had here; they live in `zeus.simulate.cluster.match` now."""

from zeus.simulate.cluster.match import Cluster, match

__all__ = ["Cluster", "match"]
