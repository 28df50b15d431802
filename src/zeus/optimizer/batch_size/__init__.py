"""The batch size (§4.3-4.4): pruned from the default outward, then sampled by what each size has cost."""

from zeus.job import JobSpec

__all__ = ["JobSpec"]
