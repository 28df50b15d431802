"""Several processes that train one model: their ranks, their shared decisions, and which rank counts which GPU."""
