"""A whole cluster of recurring jobs (§6.3)."""

from zeus.simulate.cluster.groups import Knobs, Row, Totals, replay_group, simulate

__all__ = ["Knobs", "Row", "Totals", "replay_group", "simulate"]
