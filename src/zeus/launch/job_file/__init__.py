"""job.toml: describes a recurring job and how to run it."""

from zeus.launch.job_file.reader import parse_job_file, read_job_file
from zeus.launch.job_file.values import AUTO, PLACEHOLDERS, JobFile, LearningRate, MetricsSource, trial_seed

__all__ = [
    "AUTO",
    "PLACEHOLDERS",
    "JobFile",
    "LearningRate",
    "MetricsSource",
    "parse_job_file",
    "read_job_file",
    "trial_seed",
]
