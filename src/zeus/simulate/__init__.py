"""Traces, virtual workloads, replay and baselines."""
