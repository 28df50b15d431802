"""Policies: how the batch size of a recurring job is chosen, as pure functions of the job and its past."""
