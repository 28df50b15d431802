"""Replay of a whole cluster of recurring jobs (§6.3)."""

from zeus.simulate.cluster.groups import GroupRow, Knobs, Totals, replay_group, simulate

__all__ = ["GroupRow", "Knobs", "Totals", "replay_group", "simulate"]
