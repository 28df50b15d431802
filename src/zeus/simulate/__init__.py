"""Replays of policies on traced or virtual workloads, and the baselines to compare them with."""
