"""What the devices of the existing package have in common: methods by index, and their older names."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar


class CamelCase:
    """Finds a method under its name from before that package used snake case, such as `getName`, and warns."""

    def __getattr__(self, name: str) -> Any:
        """Called for names that do not exist."""
        now = re.sub("([A-Z])", lambda letter: f"_{letter[1].lower()}", name)
        if name.startswith("_") or now == name or not hasattr(self, now):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"{name} is now called {now}.", DeprecationWarning, stacklevel=2)
        return getattr(self, now)


class ByIndex(CamelCase):
    """Several devices. Each method takes the index of one first, then what the method of that one takes."""

    _kind: ClassVar[type]  # of each device
    _index: ClassVar[str]  # the name of the first argument

    def __init__(self, devices: Sequence[Any]) -> None:
        self._devices = devices

    def __len__(self) -> int:
        return len(self._devices)

    def __getattr__(self, name: str) -> Any:
        method = None if name.startswith("_") else getattr(self._kind, name, None)
        if not callable(method):
            return super().__getattr__(name)

        def of_one(*arguments: Any, **named: Any) -> Any:
            index, *others = (named.pop(self._index), *arguments) if self._index in named else arguments
            return method(self._devices[index], *others, **named)

        return of_one
