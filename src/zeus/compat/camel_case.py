"""Method names of the existing package from before it used snake case, such as `getName` for `get_name`."""

from __future__ import annotations

import re
import warnings
from typing import Any


class CamelCase:
    """Finds a method under its older name, and warns."""

    def __getattr__(self, name: str) -> Any:
        """Called for names that do not exist."""
        now = re.sub("([A-Z])", lambda letter: f"_{letter[1].lower()}", name)
        if name.startswith("_") or now == name or not hasattr(self, now):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        warnings.warn(f"{name} is now called {now}.", DeprecationWarning, stacklevel=2)
        return getattr(self, now)
