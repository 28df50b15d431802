"""Zeus measures the energy of DNN training on GPUs and cuts it, by tuning the batch size and the GPU power limit."""

import logging
from typing import TYPE_CHECKING

from zeus.compat import finder
from zeus.lazy import lazy_getattr

if TYPE_CHECKING:
    from zeus.training.loader import ZeusDataLoader as ZeusDataLoader

__version__ = "0.3.0"
__all__ = ["ZeusDataLoader", "__version__"]

logging.getLogger("zeus").addHandler(logging.NullHandler())
finder.install()

__getattr__ = lazy_getattr(__name__, {"ZeusDataLoader": "zeus.training.loader"})  # needs torch
