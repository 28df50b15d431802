"""Runs recurrences elsewhere: as a batch job of Slurm, as a job of Ray, or as a Job of Kubernetes.

Each place only starts `zeus run` on a node. There the whole recurrence runs as it does locally: ask, run, tell. So a
place decides nothing and charges nothing, and needs a store that its nodes can reach.
"""
