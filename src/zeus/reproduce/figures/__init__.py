"""The figures and tables of the paper, one a module."""
