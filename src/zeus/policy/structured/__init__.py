"""The default policy: a curve over batch sizes, learnt from every epoch."""
