"""Imports that come late or may fail: names from other modules, and packages that not everybody has.

So a low module can offer a name that is defined further up, and a pure module one that is not pure, without importing
it: `__getattr__ = lazy_getattr(__name__, {"ZeusMonitor": "zeus.monitor.window"})`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from zeus.errors import NotInstalled
from zeus_energy import install_command


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


@contextmanager
def optional(what: str, extra: str, package: str = "") -> Iterator[None]:
    """A `with` block that imports packages of an extra.

    Args:
        what: What needs them.
        extra: The extra of our own package that installs them.
        package: The package in words. The default is the name of the one that is missing.

    Raises:
        NotInstalled: One is missing.
    """
    try:
        yield
    except ImportError as missing:
        found = package or missing.name
        raise NotInstalled(f"{what} needs {found}. Run `{install_command(extra)}`.") from missing


def require(what: str, extra: str, package: str, module: str) -> None:
    """Raise NotInstalled if this module is missing. It is not imported, because that may take seconds."""
    with optional(what, extra, package):
        if find_spec(module) is None:
            raise ModuleNotFoundError(name=module)
