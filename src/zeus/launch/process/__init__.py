"""The process of one trial: it is guarded, its output is logged, and it ends with all processes that it started."""
