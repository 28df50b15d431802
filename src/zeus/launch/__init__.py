"""One recurrence of a job, from the first ask to the target: `recur`, and what runs each try of it."""
