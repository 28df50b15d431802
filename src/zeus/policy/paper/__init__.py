"""The paper's policy (§4.3-4.4): prune from the default outward, then Thompson sampling."""
