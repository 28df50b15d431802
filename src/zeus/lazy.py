"""Names that a module takes from another one when they are first asked for.

So a low module can offer a name that is defined further up, and a pure module one that is not pure, without importing
it: `__getattr__ = lazy_getattr(__name__, {"ZeusMonitor": "zeus.monitor.window"})`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_getattr(module: str, names: Mapping[str, str] | str) -> Callable[[str], Any]:
    """A `__getattr__` for a module: each name comes from the module beside it, or all public ones from one module.

    >>> lazy_getattr("zeus.here", {"sqrt": "math"})("sqrt")(9), lazy_getattr("zeus.there", "math")("floor")(2.5)
    (3.0, 2)
    """

    def __getattr__(name: str) -> Any:
        source = names.get(name) if isinstance(names, Mapping) else None if name.startswith("_") else names
        if source is not None and hasattr(found := import_module(source), name):
            return getattr(found, name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__
