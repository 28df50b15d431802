"""Runs recurrences as a job of Ray.

    zeus run --on ray ──HTTP──▶ Ray job: driver.py ──▶ an actor with the GPUs: node_run.py ──▶ zeus run
            └── --watch: the log of the job

The actor only starts `zeus run` on its node. If its worker or its node is lost, Ray starts the actor again, somewhere
else if need be. That start continues the same recurrence, because both have the same ZEUS_RUN_ID.
"""
