"""Runs recurrences as a job of Ray.

    zeus run --on ray ──HTTP──▶ Ray: a node with enough GPUs: start.py ──becomes──▶ zeus run
            └── --watch: the log of the job

Ray runs a job once. If its worker or its node is lost, the job has failed. Another job with the same ZEUS_RUN_ID
continues its recurrence.
"""
