"""Replay of a whole cluster of recurring jobs (§6.3)."""

from zeus.simulate.cluster.groups import GroupRow, GroupUse, Knobs, replay_group, simulate

__all__ = ["GroupRow", "GroupUse", "Knobs", "replay_group", "simulate"]
