"""The figures and tables of the paper, one per module."""
