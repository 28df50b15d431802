"""The policy `structured`, which jobs use unless they name another: a curve over batch sizes, learnt from each run."""
