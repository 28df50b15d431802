"""job.toml: describes a recurring job and how to run it."""
