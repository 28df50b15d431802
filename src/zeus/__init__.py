"""Zeus measures the energy of DNN training on GPUs and cuts it, by tuning the batch size and the GPU power limit."""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zeus.training.loader import ZeusDataLoader as ZeusDataLoader

__version__ = "0.2.0"
__all__ = ["ZeusDataLoader", "__version__"]

logging.getLogger("zeus").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    """Names that need torch are loaded when they are asked for."""
    if name == "ZeusDataLoader":
        from zeus.training.loader import ZeusDataLoader

        return ZeusDataLoader
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
