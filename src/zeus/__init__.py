"""Zeus measures the energy of DNN training on GPUs and cuts it."""

import logging

__version__ = "0.1.0"

logging.getLogger("zeus").addHandler(logging.NullHandler())
